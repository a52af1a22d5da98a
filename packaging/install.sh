#!/bin/sh
# Installs colors, which is built or unpacked, below PREFIX: `./install.sh`, or `./install.sh --uninstall`, which keeps the list, its copies,
# and /etc/default/colors when it was changed. Variables: PREFIX (/usr/local); UNITS, where the units go (PREFIX/lib/systemd/system); BINARY,
# the program; DESTDIR, a directory in place of /, for packages. Of /etc it writes default/colors, if PREFIX is /usr or /usr/local.
set -eu
[ "${1-}" != --help ] || { sed -n '2,4s/^# //p' "$0" && exit; }
# the service, which is another user, reads its files
umask 022
unset CDPATH
# in an archive it is beside the others, in a checkout below packaging
cd "$(dirname "$0")"
[ -e packaging ] || cd ..
PREFIX=${PREFIX-/usr/local}
PREFIX=${PREFIX%"${PREFIX##*[!/]}"}
UNITS=${UNITS:-$PREFIX/lib/systemd/system}
case $PREFIX in
/usr | /usr/local) defaults=/etc/default/colors ;;
*) defaults=$PREFIX/etc/default/colors ;;
esac
DESTDIR=${DESTDIR-}
[ -e colors ] && built=colors || built=${CARGO_TARGET_DIR:-target}/release/colors
BINARY=${BINARY:-$built}
share=$PREFIX/share
doc=$share/doc/colors

case "$*" in
'') verb=install ;;
--uninstall) verb=uninstall ;;
*) echo "install.sh: $* is no option; --help says what is" >&2 && exit 2 ;;
esac
if [ "$verb" = install ] && [ ! -x "$BINARY" ]; then
    echo "install.sh: there is no $BINARY: run make first, or say where it is with BINARY=" >&2
    exit 1
fi
for path in "${PREFIX:-/}" "$UNITS" "${DESTDIR:-/}"; do
    case $path in
    /*) ;;
    *) echo "install.sh: $path does not begin with /" >&2 && exit 2 ;;
    esac
done

# sed and systemd take these for something else
case $PREFIX in
*[[:cntrl:]\&\|%\$\"\'\\]*) echo "install.sh: PREFIX cannot have a control character, nor one of & | % \$ \" ' \\" >&2 && exit 2 ;;
esac

# the files name /usr; in a unit a blank would end the path
relocate() { # relocate FILE PATH
    case $2 in
    *.service) blank='\\\\x20' ;;
    *) blank=' ' ;;
    esac
    sed "s|/usr/|$(echo "$PREFIX" | sed "s/ /$blank/g")/|g" "$1"
}
file() { # file MODE FILE PATH: installs a file, or removes it; a running program keeps the file that it was started from
    if [ "$verb" = uninstall ]; then
        rm -f "$DESTDIR$3"
        return
    fi
    # no link that somebody else has put there is in the way
    new=$(mktemp -d "$DESTDIR$3.XXXXXX")
    case $3 in
    *.service | */examples/* | */default/* | *.8) relocate "$2" "$3" ;;
    *) cat "$2" ;;
    esac >"$new/file"
    chmod "$1" "$new/file"
    mv -T "$new/file" "$DESTDIR$3"
    rmdir "$new"
    new=
}

new=
end() {
    [ $? = 0 ] && return
    [ -z "$new" ] || rm -rf "$new"
    echo "install.sh: stopped halfway, nothing was undone: run it again to go on, or with --uninstall to remove what is there" >&2
}
trap end EXIT
trap 'exit 1' HUP INT TERM

for path in "$PREFIX/bin" "$PREFIX/lib/colors" "$share/colors" "$share/man/man8" "$share/bash-completion/completions" \
    "$share/zsh/site-functions" "$share/fish/vendor_completions.d" "$doc/docs" "$doc/examples" "$UNITS" "${defaults%/*}"; do
    [ "$verb" = uninstall ] || mkdir -p "$DESTDIR$path"
done
file 755 "$BINARY" "$PREFIX/bin/colors"
file 755 packaging/backup "$PREFIX/lib/colors/backup"
file 644 seed/colors.json "$share/colors/colors.json"
file 644 packaging/man/colors.8 "$share/man/man8/colors.8"
file 644 packaging/completions/colors.bash "$share/bash-completion/completions/colors"
file 644 packaging/completions/_colors "$share/zsh/site-functions/_colors"
file 644 packaging/completions/colors.fish "$share/fish/vendor_completions.d/colors.fish"
for path in README.md CHANGELOG.md LICENSE packaging/debian/copyright; do
    file 644 $path "$doc/${path##*/}"
done
for path in docs/*; do
    file 644 "$path" "$doc/$path"
done
file 755 packaging/follow/follow-colors "$doc/examples/follow-colors"
for path in packaging/systemd/activation/* packaging/follow/*.service packaging/init/* packaging/prometheus/colors.rules.yml; do
    file 644 "$path" "$doc/examples/${path##*/}"
done
file 644 packaging/nginx/colors.conf "$doc/examples/nginx.conf"
for path in packaging/systemd/*.service packaging/systemd/*.timer packaging/systemd/template/*; do
    file 644 "$path" "$UNITS/${path##*/}"
done

# changed options stay
if [ ! -e "$DESTDIR$defaults" ] || [ "$(relocate packaging/systemd/colors.default "$defaults")" = "$(cat "$DESTDIR$defaults")" ]; then
    file 644 packaging/systemd/colors.default "$defaults"
fi
if [ "$verb" = uninstall ]; then
    for path in "$PREFIX/lib/colors" "$share/colors" "$doc/docs" "$doc/examples" "$doc"; do
        [ ! -d "$DESTDIR$path" ] || rmdir "$DESTDIR$path" 2>/dev/null || echo "install.sh: $path is kept: it has other files" >&2
    done
else
    # what runs is still the old program
    start="enable --now colors"
    ! systemctl --quiet is-active colors.service colors.socket 'colors@*' 2>/dev/null || start="try-restart colors 'colors@*'"
    start="systemctl daemon-reload && systemctl $start (without systemd: $PREFIX/bin/colors)"
    case $PREFIX in
    /usr | /usr/local) echo "installed; next: $start" ;;
    *) echo "installed, below $PREFIX alone; next, for systemd: cp '$UNITS/colors'* /etc/systemd/system/ &&" \
        "cp -n '$defaults' /etc/default/ && $start" ;;
    esac
fi

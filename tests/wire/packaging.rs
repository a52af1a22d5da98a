//! What is installed, by `make install` into a root of its own. The package for Debian is tried out
//! by `.ci/package`.

mod backup;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::harness::{Scratch, Server, colors, is_installed, own_environment, run, skip};
use crate::wire::recipes::{block, path_with};
use crate::wire::systemd::{check_exposure, check_unit};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Everything that `make install` installs: a mode, a directory, and the names of the files there.
const FILES: &str = "\
644 etc/default colors
755 usr/local/bin colors
755 usr/local/lib/colors backup
644 usr/local/lib/systemd/system colors-backup.service colors-backup.timer colors.service colors@.service
644 usr/local/share/bash-completion/completions colors
644 usr/local/share/colors colors.json
644 usr/local/share/doc/colors CHANGELOG.md LICENSE README.md copyright
644 usr/local/share/doc/colors/docs design.md durability.md http.md lamps.md limits.md operating.md
644 usr/local/share/doc/colors/docs performance.md proxies.md replicas.md
644 usr/local/share/doc/colors/docs disk.svg page.webp rates.svg times.svg waiting.svg
644 usr/local/share/doc/colors/examples activated.conf colors-follow.service colors.openrc colors.procd
644 usr/local/share/doc/colors/examples colors.rules.yml colors.socket nginx.conf
755 usr/local/share/doc/colors/examples follow-colors
644 usr/local/share/fish/vendor_completions.d colors.fish
644 usr/local/share/man/man8 colors.8
644 usr/local/share/zsh/site-functions _colors";

/// The same as [`files`] finds it.
fn installed() -> Vec<String> {
    let mut files = Vec::new();
    for line in FILES.lines() {
        let mut words = line.split(' ');
        let [mode, directory] = [(); 2].map(|()| words.next().unwrap());
        files.extend(words.map(|name| format!("{directory}/{name} {mode}")));
    }
    files.sort();
    files
}

/// Runs make for a root in this directory, with this build in place of the release's.
#[track_caller]
pub(super) fn make(scratch: &Scratch, target: &str, variables: &[&str]) {
    let binary = colors(&[]).get_program().to_str().unwrap().to_owned();
    let mut command = Command::new("make");
    command.arg(target).args(variables).arg(format!("DESTDIR={}", scratch.0.display()));
    let (code, _, error) =
        run(command.arg(format!("BINARY={binary}")).env_remove("PREFIX").current_dir(ROOT));
    assert_eq!(code, Some(0), "{error}");
}

/// Runs the script for a root in this directory with this build, where `systemctl` is `stand_in`.
fn install(root: &Path, prefix: &str, stand_in: &str) -> (Option<i32>, String, String) {
    let scratch = Scratch::new();
    std::os::unix::fs::symlink(stand_in, scratch.0.join("systemctl")).unwrap();
    let mut command = Command::new(Path::new(ROOT).join("packaging/install.sh"));
    command.env("DESTDIR", root).env("BINARY", colors(&[]).get_program());
    run(command.env("PREFIX", prefix).env("PATH", path_with(scratch.0.to_str().unwrap())))
}

/// The files below a directory, each with its mode behind it, in ascending order.
fn files(directory: &Path) -> Vec<String> {
    let mut find = Command::new("find");
    find.args([".", "-not", "-type", "d", "-printf", "%P %m\\n"]).current_dir(directory);
    let mut files: Vec<_> = run(&mut find).1.lines().map(str::to_owned).collect();
    files.sort();
    files
}

#[test]
fn make_uninstall_removes_what_make_install_installed() {
    if !is_installed("make") {
        return;
    }
    let scratch = Scratch::new();
    make(&scratch, "install", &[]);
    assert_eq!(files(&scratch.0), installed());
    let program = scratch.0.join("usr/local/bin/colors");
    let version = format!("colors {}\n", env!("BUILD_VERSION"));
    let told = run(Command::new(program).arg("--version"));
    assert_eq!(told, (Some(0), version, String::new()));
    // changed options and the list outlive both
    let options = scratch.write("etc/default/colors", "COLORS_READ_ONLY=true\n");
    fs::create_dir_all(scratch.0.join("var/lib/colors")).unwrap();
    let list = scratch.write("var/lib/colors/colors.db", "the list");
    make(&scratch, "install", &[]);
    make(&scratch, "uninstall", &[]);
    let kept = files(&scratch.0);
    let kept: Vec<_> = kept.iter().flat_map(|line| line.split(' ').next()).collect();
    assert_eq!(kept, ["etc/default/colors", "var/lib/colors/colors.db"]);
    assert_eq!(fs::read_to_string(options).unwrap(), "COLORS_READ_ONLY=true\n");
    assert_eq!(fs::read_to_string(list).unwrap(), "the list");
    for directory in
        ["usr/local/lib/colors", "usr/local/share/colors", "usr/local/share/doc/colors"]
    {
        assert!(!scratch.0.join(directory).exists(), "{directory}");
    }
    // a second time there is nothing to do
    make(&scratch, "uninstall", &[]);
}

#[test]
fn an_installation_says_what_to_run_next_or_how_to_go_on_after_it_stopped() {
    let scratch = Scratch::new();
    let obstacle = scratch.0.join("usr/local/share/man/man8/colors.8/x");
    fs::create_dir_all(&obstacle).unwrap();
    let (code, printed, error) = install(&scratch.0, "/usr/local", "/bin/false");
    assert_eq!((code.is_none_or(|code| code == 0), printed.as_str()), (false, ""), "{error}");
    let kept = files(&scratch.0);
    assert!(installed().contains(&kept[0]), "{kept:?}");
    let advice = "\ninstall.sh: stopped halfway, nothing was undone: run it again to go on, or with \
                  --uninstall to remove what is there\n";
    assert!(error.ends_with(advice), "{error}");
    fs::remove_dir_all(obstacle.parent().unwrap()).unwrap();
    for (is_active, start) in
        [("/bin/false", "enable --now colors"), ("/bin/true", "try-restart colors 'colors@*'")]
    {
        let next = format!(
            "installed; next: systemctl daemon-reload && systemctl {start} (without systemd: /usr/local/bin/colors)\n"
        );
        let ended = install(&scratch.0, "/usr/local", is_active);
        assert_eq!(ended, (Some(0), next, String::new()));
    }
    assert_eq!(files(&scratch.0), installed());
}

#[test]
fn a_prefix_that_units_cannot_have_is_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    let character =
        "install.sh: PREFIX cannot have a control character, nor one of & | % $ \" ' \\\n";
    for prefix in ["&", "|", "%", "$", "\"", "'", "\\", "\t", "\n"] {
        let ended = install(&scratch.0, &format!("/opt/a{prefix}b"), "/bin/false");
        assert_eq!(ended, (Some(2), String::new(), character.to_owned()), "{prefix:?}");
    }
    let error = "install.sh: relative does not begin with /\n".to_owned();
    assert_eq!(install(&scratch.0, "relative", "/bin/false"), (Some(2), String::new(), error));
    assert_eq!(files(&scratch.0), [""; 0]);
}

#[test]
fn an_installation_writes_through_no_link_that_somebody_else_has_made() {
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    let victim = elsewhere.write("victim", "kept");
    fs::create_dir(elsewhere.0.join("directory")).unwrap();
    let programs = scratch.0.join("usr/local/bin");
    fs::create_dir_all(&programs).unwrap();
    std::os::unix::fs::symlink(&victim, programs.join("colors.new")).unwrap();
    std::os::unix::fs::symlink(elsewhere.0.join("directory"), programs.join("colors")).unwrap();
    assert_eq!(install(&scratch.0, "/usr/local", "/bin/false").0, Some(0));
    assert_eq!(fs::read_to_string(victim).unwrap(), "kept");
    assert_eq!(files(&elsewhere.0.join("directory")), [""; 0]);
    assert!(fs::symlink_metadata(programs.join("colors")).unwrap().is_file());
    fs::remove_file(programs.join("colors.new")).unwrap();
    assert_eq!(files(&scratch.0), installed());
}

#[test]
fn an_installation_below_another_prefix_writes_nothing_else_and_says_what_to_copy() {
    let scratch = Scratch::new();
    let next = "installed, below /opt/a b alone; next, for systemd: \
                cp '/opt/a b/lib/systemd/system/colors'* /etc/systemd/system/ && \
                cp -n '/opt/a b/etc/default/colors' /etc/default/ && \
                systemctl daemon-reload && systemctl enable --now colors \
                (without systemd: /opt/a b/bin/colors)\n";
    let ended = install(&scratch.0, "/opt/a b", "/bin/false");
    assert_eq!(ended, (Some(0), next.to_owned(), String::new()));
    for file in files(&scratch.0) {
        assert!(file.starts_with("opt/a b/"), "{file}");
    }
}

#[test]
fn an_installation_is_the_same_with_every_umask_a_path_for_cd_and_a_slash_behind_the_prefix() {
    let elsewhere = Scratch::new();
    fs::create_dir(elsewhere.0.join("packaging")).unwrap();
    for (umask, prefix) in [("077", "/usr/local"), ("000", "/usr/local/")] {
        let scratch = Scratch::new();
        let root = scratch.0.join("root");
        let mut command = Command::new("sh");
        command.args(["-c", "umask $0 && exec packaging/install.sh", umask]).current_dir(ROOT);
        command.env("DESTDIR", &root).env("BINARY", colors(&[]).get_program());
        let (code, told, error) = run(command.env("CDPATH", &elsewhere.0).env("PREFIX", prefix));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{umask}");
        let unit = root.join("usr/local/lib/systemd/system/colors.service");
        let unit = fs::read_to_string(unit).unwrap();
        assert!(unit.contains("/usr/local/bin/colors"), "{unit}");
        assert!(!(told + &unit).contains("local//"), "{unit}");
        assert_eq!(files(&root), installed(), "{umask}");
        let mut find = Command::new("find");
        let others = run(find.arg(&root).args(["-type", "d", "-not", "-perm", "755"]));
        assert_eq!(others, (Some(0), String::new(), String::new()), "{umask}");
    }
}

#[test]
fn the_installed_units_are_sound_and_leave_little_exposed() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let scratch = Scratch::new();
    let root = scratch.0.join("a root");
    install(&root, "/opt/ü; my #colors", "/bin/false");
    let units = scratch.0.join("units");
    fs::create_dir(&units).unwrap();
    let instance = |name: &str| name.replace("@.", "@work.");
    let names =
        ["colors.service", "colors@.service", "colors-backup.service", "colors-backup.timer"];
    for name in names {
        let unit = fs::read_to_string(root.join("opt/ü; my #colors/lib/systemd/system").join(name))
            .unwrap();
        assert!(!unit.contains("/usr/"), "{unit}");
        // systemd-analyze looks for the programs that they name, and takes no template
        fs::write(
            units.join(instance(name)),
            unit.replace("/opt/", &format!("{}/a\\x20root/opt/", scratch.0.display())),
        )
        .unwrap();
    }
    for name in names {
        check_unit(&units, &instance(name));
    }
    for name in names[..3].iter().map(|name| instance(name)) {
        check_exposure(&units, &name, 0.9);
    }
}

#[test]
fn the_debian_changelog_is_of_this_version() {
    let changelog = include_str!("../../packaging/debian/changelog");
    let begin = concat!("colors (", env!("CARGO_PKG_VERSION"), ") ");
    assert!(changelog.starts_with(begin), "{changelog}");
}

#[test]
fn openrc_starts_restarts_and_stops_the_service() {
    if !is_installed("openrc-run") {
        return;
    }
    let namespaces = ["--mount", "--net", "--pid", "--fork", "--mount-proc", "true"];
    if run(Command::new("unshare").args(namespaces)).0 != Some(0) {
        return skip("unshare may make no namespace");
    }
    let scratch = Scratch::new();
    let install = format!("{ROOT}/packaging/install.sh >&2");
    let block = block(include_str!("../../docs/operating.md"), "sh", "rc-service");
    let block = block.replace("./install.sh", &install);
    for path in ["usr/local", "etc/default", "etc/init.d", "etc/runlevels/default"] {
        fs::create_dir_all(scratch.0.join(path)).unwrap();
    }
    // OpenRC seems to run, and these files of the scratch directory are those of the host
    let commands = format!(
        r#"
        mount -t tmpfs none /run && mkdir /run/openrc && cd /run/openrc && touch softlevel
        mkdir daemons exclusive failed hotplugged inactive options scheduled started starting stopping wasinactive
        mount -t tmpfs none /var/lib && mount -t tmpfs none /var/log
        for path in usr/local etc/default etc/init.d etc/runlevels; do mount --bind "$0/$path" /$path; done
        ip link set lo up
        printf 'COLORS_ACCESS_LOG="changes"' >/etc/default/colors
        exec 3>&1 >&2
        {block}
        ask() {{ curl -sSf --retry 20 --retry-delay 1 --retry-connrefused localhost:8080/colors/ink "$@" >&3; }}
        ask -X PUT -H 'If-None-Match: *' -d '{{"value":"1"}}'
        stat -c '%U %a' /var/lib/colors /var/lib/colors/colors.db >&3
        rc-service colors restart
        ask
        rc-service colors status
        rc-service colors stop
        ! ask --retry 0
        printf 'COLORS_TOKEN_FILE=/etc/my tokens\nCOLORS_ACCESS_LOG=changes' >/etc/default/colors
        ! rc-service colors start
        ls /etc/runlevels/default >&3
        cat /var/log/colors.log
    "#
    );
    let mut unshare = Command::new("unshare");
    unshare.args(&namespaces[..5]).args(["--kill-child", "sh", "-ec", &commands]).arg(&scratch.0);
    unshare.env("BINARY", colors(&[]).get_program()).env_remove("PREFIX");
    let (code, printed, error) = run(&mut unshare);
    let ink = r#"{"name":"ink","value":"1"}"#;
    let expected = format!("{ink}\nnobody 700\nnobody 600\n{ink}\ncolors\n");
    assert_eq!((code, printed), (Some(0), expected), "{error}");
    assert!(error.contains(r#"PUT "/colors/ink" 201"#), "{error}");
    assert_eq!(error.matches("[INFO] stopped\n").count(), 2, "{error}");
}

/// What stands for procd: it runs the command with the variables, in the foreground.
const PROCD: &str = r#"
    chown() { echo "chown $*"; }
    procd_open_instance() { :; }
    procd_set_param() {
        case $1 in
        command) command=$2 ;;
        env) given= ;;
        *) echo "$*" ;;
        esac
    }
    procd_append_param() { given="$2
$given"; }
    procd_close_instance() {
        echo "$given" | sort
        IFS='
'
        env $given "$command" --dump
    }
    . "$0"
    start_service
"#;

#[test]
fn the_script_for_procd_has_it_start_the_service_with_the_options() {
    let shell: &[&str] = if is_installed("busybox") { &["busybox", "sh"] } else { &["sh"] };
    let scratch = Scratch::new();
    let directory = scratch.0.display().to_string();
    let seed = r#"[{"name":"ink","value":"1"}]"#;
    Server::with_data(seed, &scratch.file("colors.db"), &[]).stop();
    let script = include_str!("../../packaging/init/colors.procd")
        .replace("/usr/bin/colors", colors(&[]).get_program().to_str().unwrap())
        .replace("/etc/default/colors", &scratch.file("options"))
        .replace("/etc/colors", &directory);
    let script = scratch.write("colors.procd", script);
    let start = |options: &str| {
        scratch.write("options", options);
        let mut command = own_environment(shell[0]);
        command.args(&shell[1..]).args(["-euc", PROCD, &script]).current_dir("/");
        run(&mut command)
    };
    // with quotes as systemd takes them, and no line feed at the end
    let options = "# a comment\n#COLORS_LISTEN=8081\nCOLORS_SEED=\"/a b\"\nCOLORS_BASE_PATH='/api'";
    let printed = format!(
        "chown nobody {directory}\nuser nobody\nstderr 1\nlimits nofile=8448 8448\n\
         respawn 3600 5 0\n\nCOLORS_BASE_PATH=/api\nCOLORS_DATA={directory}/colors.db\n\
         COLORS_SEED=/a b\n{{\"data\":[{{\"name\":\"ink\",\"value\":\"1\"}}]}}\n"
    );
    assert_eq!(start(options), (Some(0), printed, String::new()));
    // what the shell would run in place of setting it
    let (code, printed, _) = start("COLORS_TOKEN_FILE=/etc/my tokens\n");
    assert_eq!((code, printed), (Some(127), format!("chown nobody {directory}\n")));
}

#[test]
fn a_purge_removes_all_but_what_is_mounted_and_names_that() {
    if run(Command::new("unshare").args(["--mount", "true"])).0 != Some(0) {
        return skip("unshare may make no namespace");
    }
    let commands = r#"
        mount -t tmpfs none /var/lib && mount -t tmpfs none /etc
        cd /var/lib && ln -s private/colors colors
        mkdir -p private/colors colors-backup 'colors@a\x2db/below' colors@work /etc/colors /etc/elsewhere /etc/systemd/system/colors.service.d
        mount -t tmpfs none private/colors
        touch private/colors/colors.db colors@work/colors.db /etc/elsewhere/tokens
        for place in /etc/colors 'colors@a\x2db/below'; do mount --bind /etc/elsewhere "$place"; done
        sh "$0" purge
        find . /etc -name '*colors*' -o -type f | LC_ALL=C sort
    "#;
    let postrm = format!("{ROOT}/packaging/debian/postrm");
    let ended = run(Command::new("unshare").args(["--mount", "sh", "-ec", commands, &postrm]));
    let left = r"./colors@a\x2db
./colors@a\x2db/below/tokens
./private/colors
./private/colors/colors.db
/etc/colors
/etc/colors/tokens
/etc/elsewhere/tokens
";
    let said = r"colors: /var/lib/private/colors stays, since something is mounted at /var/lib/private/colors
colors: /var/lib/colors@a\x2db stays, since something is mounted at /var/lib/colors@a\x2db/below
colors: /etc/colors stays, since something is mounted at /etc/colors
";
    assert_eq!(ended, (Some(0), left.to_owned(), said.to_owned()));
}

/// All shell scripts, by their directories.
const SCRIPTS: [(&str, &str); 3] = [
    (
        ".ci",
        "boot container dist emulated foreign fuzz install newer_etcd package run schemathesis",
    ),
    (
        "packaging",
        "install.sh backup dist follow/follow-colors init/colors.openrc init/colors.procd",
    ),
    ("packaging/debian", "postinst postrm prerm"),
];

#[test]
fn the_shell_scripts_are_clean() {
    if !is_installed("shellcheck") {
        return;
    }
    let mut shellcheck = Command::new("shellcheck");
    for (directory, names) in SCRIPTS {
        shellcheck.args(names.split(' ').map(|name| format!("{directory}/{name}")));
    }
    assert_eq!(run(shellcheck.current_dir(ROOT)), (Some(0), String::new(), String::new()));
}

#[test]
fn the_manual_is_one_that_mandoc_has_nothing_to_say_to() {
    if !is_installed("mandoc") {
        return;
    }
    let mut mandoc = Command::new("mandoc");
    mandoc.args(["-T", "lint", "-W", "warning", "packaging/man/colors.8"]).current_dir(ROOT);
    assert_eq!(run(&mut mandoc), (Some(0), String::new(), String::new()));
}

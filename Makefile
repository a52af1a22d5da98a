# Builds colors and installs it below PREFIX; packages set DESTDIR as well. The .deb is made by `packaging/deb`, not by this.
PREFIX ?= /usr/local
DESTDIR ?=
BINARY ?= $(or $(CARGO_TARGET_DIR),target)/release/colors
UNITS ?= $(PREFIX)/lib/systemd/system

root = $(DESTDIR)$(PREFIX)
units = $(DESTDIR)$(UNITS)
defaults = $(DESTDIR)/etc/default/colors
doc = $(root)/share/doc/colors
# the files in the tree name /usr
relocate = sed 's|/usr/|$(PREFIX)/|g'

build:
	cargo build --release

install:
	install -D -m 755 $(BINARY) $(root)/bin/colors
	install -D -m 755 packaging/backup $(root)/lib/colors/backup
	install -D -m 644 seed/colors.json $(root)/share/colors/colors.json
	install -D -m 644 packaging/man/colors.8 $(root)/share/man/man8/colors.8
	install -D -m 644 packaging/completions/colors.bash $(root)/share/bash-completion/completions/colors
	install -D -m 644 packaging/completions/_colors $(root)/share/zsh/site-functions/_colors
	install -D -m 644 packaging/completions/colors.fish $(root)/share/fish/vendor_completions.d/colors.fish
	install -d $(doc)/examples $(doc)/docs $(units) $(dir $(defaults))
	install -m 644 README.md CHANGELOG.md LICENSE packaging/debian/copyright $(doc)
	install -m 644 $(wildcard docs/*) $(doc)/docs
	install -m 644 packaging/systemd/activation/colors.socket packaging/systemd/activation/activated.conf $(doc)/examples
	install -m 644 packaging/nginx/colors.conf $(doc)/examples/nginx.conf
	install -m 644 packaging/prometheus/colors.rules.yml $(doc)/examples
	for unit in colors.service colors-backup.service colors-backup.timer; do \
		$(relocate) packaging/systemd/$$unit >$(units)/$$unit && chmod 644 $(units)/$$unit || exit 1; done
	[ -e $(defaults) ] || { $(relocate) packaging/systemd/colors.default >$(defaults) && chmod 644 $(defaults); }

# keeps the list, its copies, and /etc/default/colors when it was changed
uninstall:
	rm -f $(root)/bin/colors $(root)/lib/colors/backup $(root)/share/colors/colors.json $(root)/share/man/man8/colors.8
	rm -f $(root)/share/bash-completion/completions/colors $(root)/share/zsh/site-functions/_colors
	rm -f $(root)/share/fish/vendor_completions.d/colors.fish
	rm -f $(addprefix $(doc)/,README.md CHANGELOG.md LICENSE copyright) \
		$(addprefix $(doc)/examples/,colors.socket activated.conf nginx.conf colors.rules.yml) \
		$(addprefix $(doc)/,$(wildcard docs/*))
	rm -f $(addprefix $(units)/,colors.service colors-backup.service colors-backup.timer)
	for directory in $(root)/lib/colors $(root)/share/colors $(doc)/examples $(doc)/docs $(doc); do \
		[ ! -d $$directory ] || rmdir --ignore-fail-on-non-empty $$directory; done
	! $(relocate) packaging/systemd/colors.default | cmp -s - $(defaults) || rm $(defaults)

.PHONY: build install uninstall

# Builds colors and installs it below PREFIX; packages set DESTDIR as well. packaging/install.sh says what else can be set.
PREFIX ?= /usr/local
export PREFIX DESTDIR UNITS BINARY

build:
	cargo build --release

install:
	packaging/install.sh

uninstall:
	packaging/install.sh --uninstall

# what a release consists of, in dist/: archives, packages, the image, and what is inside; for some architectures with ARCH="aarch64 armv7"
dist:
	packaging/dist $(ARCH)

# measures again all that README.md and docs/performance.md show, draws the plots, and puts the tables there
figures:
	cargo run --release --manifest-path benches/Cargo.toml -- all

.PHONY: build install uninstall dist figures

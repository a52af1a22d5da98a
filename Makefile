# Builds colors and installs it below PREFIX; packages set DESTDIR as well. packaging/install.sh says what else can be set.
PREFIX ?= /usr/local
export PREFIX DESTDIR UNITS BINARY

build:
	cargo build --release

install:
	packaging/install.sh

uninstall:
	packaging/install.sh --uninstall

# in dist/: the archive and the package for this machine, or for other processors with ARCH="aarch64 armv7"
dist:
	packaging/dist archives $(ARCH)

# all that a release has, for all processors
release:
	packaging/dist release

# measures again all that README.md and docs/performance.md show, draws the plots, and puts the tables there
figures:
	ulimit -n 20000 && cargo run --release --manifest-path benches/Cargo.toml -- all

.PHONY: build install uninstall dist release figures

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

.PHONY: build install uninstall dist

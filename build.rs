//! Sets `BUILD_VERSION`, the version for `--version` and the log: with the commit, unless that has
//! the version's tag. Outside a checkout it is the version alone. Also makes a static program
//! smaller.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    // What the program is made of. `describe` adds the files of git.
    for path in ["build.rs", "src", "crates", "seed", "Cargo.toml", "Cargo.lock", ".cargo"] {
        watch(path);
    }
    let build = match Path::new(".git").exists() {
        true => describe(version).unwrap_or_else(|| version.to_owned()),
        // A package, an archive, or sources in somebody else's checkout.
        false => version.to_owned(),
    };
    println!("cargo::rustc-env=BUILD_VERSION={build}");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    let is_static = target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if is_static && target("ENV") == "gnu" && target("ARCH") == "x86_64" {
        // 100 KiB less: addresses that a start has to correct are packed (DT_RELR; glibc 2.36).
        // Not tried on the other processors.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// `0.1.0` at the tag v0.1.0, and `0.1.0+f9df746` elsewhere; if a tracked file has changed,
/// `0.1.0+dirty` and `0.1.0+f9df746-dirty`. `None` if git tells nothing.
fn describe(version: &str) -> Option<String> {
    for name in ["logs/HEAD", "HEAD", "packed-refs", "refs/tags"] {
        git(&["rev-parse", "--git-path", name]).iter().for_each(|path| watch(path));
    }
    let tag = format!("v{version}");
    match git(&["describe", "--tags", "--exact-match", "--match", &tag, "--dirty"]) {
        Some(exact) if exact == tag => Some(version.to_owned()),
        Some(_) => Some(format!("{version}+dirty")),
        None => git(&["describe", "--always", "--exclude=*", "--abbrev=7", "--dirty"])
            .map(|commit| format!("{version}+{commit}")),
    }
}

/// Has cargo run this again when the file has changed. One that does not exist would count as
/// changed at every build.
fn watch(path: &str) {
    if Path::new(path).exists() {
        println!("cargo::rerun-if-changed={path}");
    }
}

/// What git prints; `None` if there is no git, or it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}

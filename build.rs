//! Says which build this is: the version, and the commit unless that is the version's tag. Outside
//! a checkout it is the version alone.

use std::path::Path;
use std::process::Command;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    // what the program is made of; and what git changes when HEAD moves, or a tag is made
    for path in ["build.rs", "src", "seed", "Cargo.toml", "Cargo.lock", ".cargo"] {
        watch(path);
    }
    let build = match Path::new(".git").exists() {
        true => describe(version).unwrap_or_else(|| version.to_owned()),
        // a package, an archive, or sources in somebody else's checkout
        false => version.to_owned(),
    };
    println!("cargo::rustc-env=BUILD_VERSION={build}");
}

/// `0.1.0` at the tag v0.1.0, and `0.1.0+f9df746` elsewhere; with `dirty` behind it if a file is
/// not as in the commit. Nothing if git says nothing.
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

/// What git prints; nothing without git, or where it refuses.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}

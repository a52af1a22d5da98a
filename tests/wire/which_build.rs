//! What a build calls itself, in a checkout and outside: the build script, run in directories like
//! those that it finds.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::harness::{Scratch, is_installed};

/// Compiles the build script of version 1.2.3.
fn build_script(scratch: &Scratch) -> String {
    let path = format!("{}/script", scratch.0.display());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs");
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "-o", &path, source]).env("CARGO_PKG_VERSION", "1.2.3");
    assert!(rustc.status().unwrap().success());
    path
}

/// The name that the script gives a build of what is in the directory.
fn name(script: &str, directory: &Path) -> String {
    let output = Command::new(script).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let output = String::from_utf8(output.stdout).unwrap();
    let name = output.lines().find_map(|line| line.strip_prefix("cargo::rustc-env=BUILD_VERSION="));
    name.expect("it gives one").to_owned()
}

#[track_caller]
fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    let settings = ["user.name=tester", "user.email=a@example.org", "commit.gpgSign=false"];
    command.args(settings.into_iter().chain(["tag.gpgSign=false"]).flat_map(|set| ["-c", set]));
    let output = command.args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn a_build_is_named_after_its_commit_unless_that_is_tagged_with_the_version() {
    if !is_installed("git") {
        return;
    }
    let scratch = Scratch::new();
    let script = build_script(&scratch);
    let checkout = scratch.0.join("checkout");
    fs::create_dir_all(checkout.join("src")).unwrap();
    let source = scratch.write("checkout/src/main.rs", "fn main() {}");
    assert_eq!(name(&script, &checkout), "1.2.3");

    git(&checkout, &["init", "--quiet"]);
    git(&checkout, &["add", "."]);
    git(&checkout, &["commit", "--quiet", "--message=first"]);
    let commit = git(&checkout, &["rev-parse", "--short=7", "HEAD"]);
    assert_eq!(name(&script, &checkout), format!("1.2.3+{commit}"));
    git(&checkout, &["tag", "v1.2.2"]);
    git(&checkout, &["tag", "--annotate", "--message=another", "v1.2.30"]);
    assert_eq!(name(&script, &checkout), format!("1.2.3+{commit}"));
    let other = scratch.0.join("worktree");
    git(&checkout, &["worktree", "add", "--quiet", other.to_str().unwrap()]);
    fs::write(other.join("src/main.rs"), "changed").unwrap();
    assert_eq!(name(&script, &other), format!("1.2.3+{commit}-dirty"));

    git(&checkout, &["tag", "v1.2.3"]);
    assert_eq!(name(&script, &checkout), "1.2.3");
    assert_eq!(name(&script, &other), "1.2.3+dirty");
    fs::write(source, "changed").unwrap();
    assert_eq!(name(&script, &checkout), "1.2.3+dirty");

    // sources that somebody else keeps in a repository
    assert_eq!(name(&script, &checkout.join("src")), "1.2.3");
}

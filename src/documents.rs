//! The man page and the completions of the shells, made from the definition of the command line. A test fails when those in the tree are stale.

use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Args;

/// Makes the tests write the files instead of comparing them: `WRITE_DOCUMENTS=1 cargo test documents`.
const WRITE: &str = "WRITE_DOCUMENTS";

/// Everything that does not follow from the options.
const TEMPLATE: &str = include_str!("../packaging/man/colors.8.in");

/// Fills the template: `@NAME@` stands for what is made here.
fn man_page() -> String {
    let mut command = Args::command();
    command.build();
    let synopsis: String = command.get_arguments().filter(|option| !option.is_hide_set()).map(synopsis_of).collect();
    let mut options = Vec::new();
    Man::new(Args::command()).render_options_section(&mut options).unwrap();
    TEMPLATE
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@SYNOPSIS@\n", &synopsis)
        .replace("@OPTIONS@\n", str::from_utf8(&options).unwrap())
}

/// One option with its value, which clap_mangen leaves out: `[--log-level off|error|...]` when the values are known, or else `[--seed FILE]`.
fn synopsis_of(option: &Arg) -> String {
    let long = option.get_long().expect("every option has a long name").replace('-', "\\-");
    let short = option.get_short().map(|short| format!("\\fB\\-{short}\\fR|")).unwrap_or_default();
    let values: Vec<String> = option.get_possible_values().iter().map(|value| format!("\\fB{}\\fR", value.get_name())).collect();
    let value = match option.get_value_names() {
        _ if !option.get_action().takes_values() => String::new(),
        _ if !values.is_empty() && !option.is_hide_possible_values_set() => format!("\\ {}", values.join("|")),
        Some(names) if option.is_require_equals_set() => format!("[=\\fI{}\\fR]", names.concat()),
        Some(names) => format!("\\ \\fI{}\\fR", names.concat()),
        None => panic!("--{long} has a value without a name"),
    };
    let repeats = if matches!(option.get_action(), ArgAction::Append) { " ..." } else { "" };
    format!("[{short}\\fB\\-\\-{long}\\fR{value}]{repeats}\n")
}

/// Makes the script that completes the options in a shell.
fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "colors", &mut script);
    script
}

/// Compares a file of the tree with what it has to be, or makes it that.
#[track_caller]
fn check(file: &str, expected: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(file);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, expected).unwrap();
    }
    let is_current = fs::read(&path).is_ok_and(|content| content == expected);
    assert!(is_current, "{file} is stale: {WRITE}=1 cargo test documents");
}

#[test]
fn the_man_page_is_that_of_the_options() {
    check("man/colors.8", man_page().as_bytes());
}

#[test]
fn the_synopsis_has_each_value_as_it_is_given() {
    let synopsis = ["\\fB", "\\fI", "\\fR", "\\"].iter().fold(man_page(), |page, markup| page.replace(markup, ""));
    for expected in ["[--seed FILE]", "[--read-only[=BOOL]]", "[--log-level off|error|warn|info|debug]", "[--check]"] {
        assert!(synopsis.lines().any(|line| line == expected), "{expected}");
    }
}

#[test]
fn the_completions_are_those_of_the_options() {
    check("completions/colors.bash", &completions(Shell::Bash));
    check("completions/_colors", &completions(Shell::Zsh));
    check("completions/colors.fish", &completions(Shell::Fish));
}

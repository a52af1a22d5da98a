//! The man page and the completions of the shells, made from the definition of the command line,
//! and the unit of further services, made from that of the first. A test fails when those in the
//! tree are stale.

use std::fs;
use std::path::Path;
use std::process::Command;

use clap::{Arg, ArgAction, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::options::Options;

/// Makes the tests write the files instead of comparing them: `WRITE_DOCUMENTS=1 cargo test
/// documents`.
const WRITE: &str = "WRITE_DOCUMENTS";

/// Everything that does not follow from the options.
const TEMPLATE: &str = include_str!("../packaging/man/colors.8.in");

/// Whose first entry has the date of this version.
const CHANGELOG: &str = include_str!("../packaging/debian/changelog");

/// The date of the version, as in 2026-11-21.
fn date() -> String {
    let (_, written) = CHANGELOG
        .lines()
        .find_map(|line| line.strip_prefix(" -- ")?.split_once(", "))
        .expect("it is signed");
    let [day, month, year] = written.splitn(4, ' ').take(3).collect::<Vec<_>>()[..] else {
        panic!("no date: {written}")
    };
    let months =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = 1 + months.iter().position(|name| *name == month).expect("it is a month");
    format!("{year}-{month:02}-{day:0>2}")
}

/// Fills the template: `@NAME@` stands for what is made here.
fn man_page() -> String {
    let mut command = Options::command();
    command.build();
    let synopsis: String =
        command.get_arguments().filter(|option| !option.is_hide_set()).map(synopsis_of).collect();
    let mut options = Vec::new();
    Man::new(Options::command()).render_options_section(&mut options).unwrap();
    TEMPLATE
        .replace("@DATE@", &date())
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@SYNOPSIS@\n", &synopsis)
        .replace("@OPTIONS@\n", &String::from_utf8(options).unwrap())
}

/// One option with its value, which clap_mangen leaves out: `[--seed FILE]`.
fn synopsis_of(option: &Arg) -> String {
    let long = option.get_long().expect("every option has a long name").replace('-', "\\-");
    let short = option.get_short().map(|short| format!("\\fB\\-{short}\\fR|")).unwrap_or_default();
    let value = match option.get_value_names() {
        _ if !option.get_action().takes_values() => String::new(),
        Some(names) if option.is_require_equals_set() => format!("[=\\fI{}\\fR]", names.concat()),
        Some(names) if option.get_num_args().is_some_and(|count| count.min_values() == 0) => {
            format!("\\ [\\fI{}\\fR]", names.concat())
        }
        Some(names) => format!("\\ \\fI{}\\fR", names.concat()),
        None => panic!("--{long} has a value without a name"),
    };
    let repeats = if matches!(option.get_action(), ArgAction::Append) { " ..." } else { "" };
    format!("[{short}\\fB\\-\\-{long}\\fR{value}]{repeats}\n")
}

/// Makes the script that completes the options in a shell.
fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Options::command(), "colors", &mut script);
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
    assert!(is_current, "{file} is stale: {WRITE}=1 cargo test --lib documents");
}

#[test]
fn the_man_page_is_that_of_the_options() {
    check("man/colors.8", man_page().as_bytes());
}

#[test]
fn the_synopsis_has_each_value_as_it_is_given() {
    let synopsis = ["\\fB", "\\fI", "\\fR", "\\"]
        .iter()
        .fold(man_page(), |page, markup| page.replace(markup, ""));
    for expected in ["[--seed FILE]", "[--read-only[=BOOL]]", "[--health [URL]]", "[--check]"] {
        assert!(synopsis.lines().any(|line| line == expected), "{expected}");
    }
}

/// Makes the script for bash, which takes `--option=value` apart into three words, where
/// clap_complete looks for the option one word back. Behind an option that takes its value with an
/// equals sign alone, other options follow a space.
fn bash_completions() -> String {
    let script = String::from_utf8(completions(Shell::Bash)).unwrap();
    let (before, after) = script.split_once("    prev=\"$3\"\n").expect("it sets the word before");
    let command = Options::command();
    let names = command
        .get_arguments()
        .filter(|option| option.is_require_equals_set())
        .filter_map(Arg::get_long);
    let needs_equals: String = names.map(|name| format!("--{name} ")).collect();
    format!(
        r#"{before}    prev="$3"
    if [[ "${{prev}}" == "=" ]]; then
        prev="${{COMP_WORDS[COMP_CWORD-2]}}"
    elif [[ " {needs_equals}" == *" ${{prev}} "* && "${{COMP_WORDS[COMP_CWORD]}}" != "=" ]]; then
        prev=""
    fi
{after}"#
    )
}

#[test]
fn bash_completes_a_value_behind_an_equals_sign() {
    let script = format!("{}\nCOMP_WORDS=(colors \"$@\"); COMP_CWORD=$#", bash_completions());
    let complete = |words: &[&str]| {
        let run = "_colors colors \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; echo \"${COMPREPLY[@]}\"";
        let output = Command::new("bash")
            .args(["-c", &format!("{script}\n{run}"), "bash"])
            .args(words)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    assert_eq!(complete(&["--log-level", "=", "d"]), "debug");
    assert_eq!(complete(&["--read-only", "=", "t"]), "true");
    assert_eq!(complete(&["--log-level", "d"]), "debug");
    assert_eq!(complete(&["--log-l"]), "--log-level");
    let options = complete(&["--read-only", ""]);
    assert!(options.contains("--listen") && !options.contains("true"), "{options}");
}

#[test]
fn the_completions_are_those_of_the_options() {
    check("completions/colors.bash", bash_completions().as_bytes());
    check("completions/_colors", &completions(Shell::Zsh));
    check("completions/colors.fish", &completions(Shell::Fish));
}

/// The unit of further services, whose names stand behind `@`: the first one's, with files and a
/// user of their own.
fn template_unit() -> String {
    let unit = include_str!("../packaging/systemd/colors.service");
    let (_, settings) = unit.split_once("[Unit]\n").expect("it has a section of that name");
    let renamed = [
        ("/etc/default/colors", "/etc/default/colors@%i"),
        ("/var/lib/colors", "/var/lib/colors@%i"),
        ("/etc/colors/tokens", "/etc/colors/tokens@%i"),
        ("Directory=colors\n", "Directory=colors@%i\n"),
        ("systemctl restart colors", "systemctl restart colors@%i"),
        ("systemctl edit colors", "systemctl edit colors@NAME"),
        ("named colors over HTTP\n", "named colors over HTTP: %i\n"),
        // systemd derives none from a name with @
        ("DynamicUser=yes\n", "DynamicUser=yes\nUser=colors-%i\n"),
        // without a port of its own it cannot start
        ("EnvironmentFile=-", "EnvironmentFile="),
    ];
    let settings = renamed.iter().fold(settings.to_owned(), |settings, (first, further)| {
        assert!(settings.contains(first), "{first}");
        settings.replace(first, further)
    });
    format!(
        "# A further service, as in colors@work.service: its port (COLORS_LISTEN) and options are in /etc/default/colors@work, its list is in\n\
         # /var/lib/colors@work. Made from colors.service.\n[Unit]\n{settings}"
    )
}

#[test]
fn the_template_unit_is_the_unit_with_files_of_its_own() {
    check("systemd/template/colors@.service", template_unit().as_bytes());
}

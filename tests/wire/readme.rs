//! The commands that README shows, run as they stand: what it prints is what they print.

use std::process::{Command, Stdio};

use crate::harness::{Scratch, Server, colors};

/// The `console` blocks of README: each command, which `> ` continues, with the output shown below it.
fn commands() -> Vec<(String, String)> {
    let readme = include_str!("../../README.md");
    let mut commands: Vec<(String, String)> = Vec::new();
    for block in readme.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                commands.push((command.to_owned(), String::new()));
                continue;
            }
            let (command, output) = commands.last_mut().expect("a block starts with a command");
            match line.strip_prefix("> ") {
                Some(further) => *command += &format!("\n{further}"),
                None => *output += &format!("{line}\n"),
            }
        }
    }
    commands
}

#[test]
fn every_command_prints_what_readme_shows() {
    let mut server = Server::start(&[]);
    let scratch = Scratch::new();
    let commands = commands();
    assert!(commands.len() >= 15);
    for (command, expected) in commands {
        // a start in the background takes the place of the service that ran before
        if let Some(arguments) = command.strip_prefix("target/release/colors ").and_then(|rest| rest.strip_suffix(" &")) {
            let mut program = colors(&["--listen", "127.0.0.1:0"]);
            program.args(arguments.split(' ')).current_dir(&scratch.0);
            server = Server::spawn(program);
            continue;
        }
        let command_here = command.replace("localhost:8080", &server.address.to_string());
        let mut shell = Command::new("sh");
        shell.args(["-c", &command_here]).current_dir(&scratch.0).env("PAUSE", "0").stderr(Stdio::inherit());
        let printed = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        assert_eq!(printed.trim_end(), expected.trim_end(), "{command}");
    }
}

#[test]
fn its_option_table_is_that_of_the_program() {
    let help = String::from_utf8(colors(&["--help"]).output().unwrap().stdout).unwrap();
    let options = |text: &str, start: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.trim_start().strip_prefix(start)?.split([' ', '`']).next().map(str::to_owned)).collect()
    };
    let mut of_program = options(&help, "--");
    of_program.retain(|option| option != "help" && option != "version");
    assert_eq!(options(include_str!("../../README.md"), "| `--"), of_program);
}

#[test]
fn its_install_commands_find_their_files() {
    let scratch = Scratch::new();
    let readme = include_str!("../../README.md");
    let commands: Vec<&str> = readme.lines().map(str::trim_start).filter(|line| line.starts_with("install -D ")).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        let here = command.replace(" /", &format!(" {}/", scratch.0.display()));
        let output = Command::new("sh").args(["-c", &here]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(output.status.success(), "{here}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

//! The commands that README shows, run as they stand: what it prints is what they print.

use std::process::{Command, Stdio};

use crate::harness::{Scratch, Server};

/// The `console` blocks of README: each command with the output shown below it.
fn commands() -> Vec<(String, String)> {
    let readme = include_str!("../../README.md");
    let mut commands: Vec<(String, String)> = Vec::new();
    for block in readme.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            match line.strip_prefix("$ ") {
                Some(command) => commands.push((command.to_owned(), String::new())),
                None => {
                    let (_, output) = commands.last_mut().expect("a block starts with a command");
                    *output += line;
                    output.push('\n');
                }
            }
        }
    }
    commands
}

#[test]
fn every_command_prints_what_readme_shows() {
    let server = Server::start(&[]);
    let scratch = Scratch::new();
    let commands = commands();
    assert!(commands.len() >= 6);
    for (command, expected) in commands {
        let command_here = command.replace("localhost:8080", &server.address.to_string());
        let output = Command::new("sh").args(["-c", &command_here]).current_dir(&scratch.0).stderr(Stdio::inherit()).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.trim_end(), expected.trim_end(), "{command}");
    }
}

#[test]
fn its_option_table_is_that_of_the_program() {
    let help = String::from_utf8(crate::harness::colors(&["--help"]).output().unwrap().stdout).unwrap();
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
    let program = crate::harness::colors(&[]).get_program().to_str().unwrap().to_owned();
    let readme = include_str!("../../README.md");
    let commands: Vec<&str> = readme.lines().filter(|line| line.starts_with("install -D ")).collect();
    assert!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        // below a root of its own, and this build in place of the release's
        let here = command.replace(" /", &format!(" {}/", scratch.0.display())).replace("target/release/colors", &program);
        let output = Command::new("sh").args(["-c", &here]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
        assert!(output.status.success(), "{here}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let program = scratch.0.join("usr/local/bin/colors");
    assert!(Command::new(program).arg("--version").stdout(Stdio::null()).status().unwrap().success());
}

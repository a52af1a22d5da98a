//! Options, on the command line and in the environment: what they take, what is said to a mistake,
//! and that the documents name no others.

use std::collections::BTreeSet;
use std::fs;

use crate::common::harness::{self, Scratch, Server, colors};
use crate::wire::readme::DOCUMENTS;

/// Runs the program to its end with these arguments and variables; gives exit code, standard output
/// and standard error.
#[track_caller]
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    harness::run(colors(arguments).envs(variables.iter().copied()))
}

/// A running service with these arguments and variables.
fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Server {
    let mut command = colors(&["--listen", "127.0.0.1:0"]);
    command.args(arguments).envs(variables.iter().copied());
    Server::spawn(command)
}

#[test]
fn a_mistake_in_variables_is_reported_by_their_names() {
    for (variables, expected) in [
        (&[("COLORS_MAX_BODY", "lots")], "invalid value 'lots' for 'COLORS_MAX_BODY': give a"),
        (&[("COLORS_READ_ONLY", "perhaps")], "invalid value 'perhaps' for 'COLORS_READ_ONLY'"),
        (&[("COLORS_LOG_LEVEL", "inf")], "invalid value 'inf' for 'COLORS_LOG_LEVEL'"),
        (&[("COLORS_LISTEN", "8080,:80")], "invalid value ':80' for 'COLORS_LISTEN': give a port"),
    ] {
        let (code, out, error) = run(&[], variables);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
        assert!(error.starts_with(&format!("error: {expected}")), "{error}");
        assert!(!error.contains("--max-body"), "{error}");
    }
}

#[test]
fn an_empty_option_is_not_blamed_on_its_variable() {
    for variables in [&[][..], &[("COLORS_DATA", "list.db"), ("COLORS_MAX_BODY", "lots")]] {
        for option in ["--data", "--seed", "--token-file", "--listen", "--max-body", "--private"] {
            let (code, _, error) = run(&[&format!("{option}=")], variables);
            assert_eq!(code, Some(2), "{error}");
            assert!(!error.contains("COLORS_") && error.contains(&format!("'{option}")), "{error}");
        }
    }
}

#[test]
fn an_empty_variable_that_is_to_protect_never_starts() {
    let scratch = Scratch::new();
    let tokens = format!("--token-file={}", scratch.write_tokens("a-token-0123456789"));
    for (name, option) in [
        ("COLORS_TOKEN_FILE", tokens.as_str()),
        ("COLORS_PRIVATE", "--private=no"),
        ("COLORS_READ_ONLY", "--read-only"),
    ] {
        // Without the refusal, --check would succeed.
        let (code, out, error) = run(&["--check"], &[(name, "")]);
        let expected = format!(
            "error: the variable {name} is empty: give it a value, or remove the line that sets it\n"
        );
        assert_eq!((code, out.as_str()), (Some(2), ""), "{name}: {error}");
        assert!(error.starts_with(&expected), "{error}");
        // the option overrides it, and nothing is left to say
        let (code, _, warnings) = run(&["--check", option], &[(name, "")]);
        assert_eq!((code, warnings.as_str()), (Some(0), ""));
    }
}

#[test]
fn private_without_tokens_never_starts() {
    let check = |arguments: &[&str], variables: &[(&str, &str)], said: &str| {
        let expected = format!("error: {said} protects nothing without --token-file\n");
        // With --check first: without the refusal, the others would not end.
        for further in [&["--check"][..], &["--follow", "http://127.0.0.1:1"], &[]] {
            let (code, out, error) = run(&[arguments, further].concat(), variables);
            assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {error}");
            assert!(error.starts_with(&expected), "{arguments:?}, {variables:?}: {error}");
        }
    };
    for word in ["true", "yes", "on", "1", "y", "t", "YES", "True"] {
        check(&[&format!("--private={word}")], &[], "--private");
        check(&[&format!("--private={word}")], &[("COLORS_PRIVATE", "no")], "--private");
        check(&[], &[("COLORS_PRIVATE", word)], "COLORS_PRIVATE");
    }
    check(&["--private"], &[], "--private");
    let (code, _, error) = run(&["--check", "--private=no"], &[("COLORS_PRIVATE", "1")]);
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn a_variable_that_is_empty_or_unknown_does_nothing_and_is_said_to() {
    let empty = ["COLORS_DATA", "COLORS_MAX_BODY", "COLORS_SEED"];
    let unknown = ["COLORS_READONLY", "COLORS_PORT", "COLORS_XYZZY", "COLORS_CHECK"];
    // that of the backup beside those of the service is known
    let mut variables = vec![("COLORS_BACKUPS", "7")];
    variables.extend(empty.map(|name| (name, "")));
    variables.extend(unknown.map(|name| (name, "true")));
    let server = start(&[], &variables);
    server.ask("DELETE", "/colors/red", "").expect_status(200);
    let log = server.stop();
    let is_empty = |name| format!("the variable {name} is empty, which is the same as not set");
    let is_unknown = |name| format!("the variable {name} is unknown and does nothing");
    for warning in empty.map(is_empty).iter().chain(&unknown.map(is_unknown)) {
        assert_eq!(log.matches(&format!("[WARN] {warning}\n")).count(), 1, "{log}");
    }
    assert_eq!(log.matches("WARN").count(), empty.len() + unknown.len(), "{log}");
    assert!(log.lines().next().unwrap().contains("listening on"), "{log}");
}

#[test]
fn the_command_line_overrules_a_variable_in_both_directions() {
    let server = start(&["--read-only=off"], &[("COLORS_READ_ONLY", "YES")]);
    server.ask("DELETE", "/colors/red", "").expect_status(200);
    let server = start(&["--read-only"], &[("COLORS_READ_ONLY", "no")]);
    server.ask("DELETE", "/colors/red", "").expect_status(405);
    // the whole list of addresses, not one more
    let server = start(&[], &[("COLORS_LISTEN", "127.0.0.1:1")]);
    assert!(!server.log().contains("127.0.0.1:1 "), "{}", server.log());
}

#[test]
fn check_says_in_one_line_whether_options_and_files_are_fine() {
    let scratch = Scratch::new();
    let seed = scratch.write("seed.json", r#"[{"name":"a","value":"b"},{"name":"c","value":"d"}]"#);
    let data = scratch.file("list.db");
    let check = |arguments: &[&str]| run(&[&["--check"], arguments].concat(), &[]);
    let fine = |line: &str| (Some(0), format!("the options are fine: {line}\n"), String::new());
    assert_eq!(check(&["--seed", &seed]), fine(&format!("2 colors from {seed}")));
    let both = ["--seed", &seed, "--data", &data];
    assert_eq!(check(&both), fine(&format!("2 colors from {seed}, for {data}")));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1, "it wrote something");
    // with a service that uses the same file and the same address
    let server = Server::start(&both);
    let taken = ["--listen", &server.address.to_string(), "--data", &data];
    assert_eq!(check(&taken), fine(&format!("2 colors kept in {data}")));
    server.connect().expect_open();
    server.stop();
    let (code, out, log) = run(&["--check", "--seed", "none.json"], &[]);
    assert_eq!((code, out.as_str(), log.lines().count()), (Some(1), "", 1), "{log}");
    assert!(log.contains("[ERROR] cannot read the seed none.json: "), "{log}");
    assert_eq!(check(&["--max-body", "x"]).0, Some(2));
}

#[test]
fn a_usage_error_exits_with_2_and_says_what_to_give() {
    for (arguments, expected) in [
        ("seed.json", "'seed.json' found\n\n  tip: give options by name, as --seed FILE or"),
        ("-p 80", "'-p' found\n\n  tip: give options by name, as --seed FILE or --listen PORT\n"),
        ("--no-such-option", "--no-such-option"),
        ("--max-bdy 1", "a similar argument exists: '--max-body'"),
        ("--base-path api", "a base path starts with \"/\", as in \"/api\""),
        ("--log-level inf", "a similar value exists: 'info'"),
        ("--log-level x", "[possible values: off, error, warn, info, debug]"),
        ("--dump", "required arguments were not provided:\n  --data <FILE>\n"),
        ("--etcd-user-file f --data f", "--etcd-user-file has no use without --data etcd://"),
        ("--follow-token-file f", "required arguments were not provided:\n  --follow <URL>\n"),
        ("--check --data etcd://a/b --follow http://a", "--follow would replace the list in etcd"),
        ("--follow https://colors.example.org", "a service speaks no TLS: give the http:// URL of"),
        ("--read-only=x", "'x' for '--read-only[=<BOOL>]'\n  [possible values: true, false]\n"),
        ("--workers 257", "'257' for '--workers <N>': give a number from 1 to 256"),
        ("--allow-origin *", "there is no wildcard: give each origin, as in https://example.org"),
        ("--listen ::1:8080", "give a port, an address and a port, or the path of a unix socket"),
        ("--port 99999", "invalid value '99999' for '--port': give a port"),
    ] {
        let (code, out, error) = run(&arguments.split(' ').collect::<Vec<_>>(), &[]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments}: {error}");
        assert!(error.contains(expected), "{arguments}: {error}");
    }
}

/// Options of other programs that the documents name by themselves.
const OTHERS: [&str; 6] = ["--before", "--format", "--help", "--json", "--memory", "--path-as-is"];

#[test]
fn options_that_the_documents_and_the_default_file_name_are_those_of_the_program() {
    let (code, help, error) = run(&["--help"], &[]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let of_program: BTreeSet<&str> =
        help.split_whitespace().filter_map(|word| word.split(['[', ',']).next()).collect();
    let check = |place: &str, name: String| {
        let name = name.as_str();
        assert!(of_program.contains(name) || OTHERS.contains(&name), "{place}: {name}");
    };
    for (path, document) in DOCUMENTS.iter().filter(|(path, _)| *path != "benches/README.md") {
        for rest in document.split("`--").skip(1) {
            check(path, format!("--{}", rest.split([' ', '=', '`']).next().unwrap()));
        }
    }
    let defaults = include_str!("../../packaging/systemd/colors.default");
    let lines: Vec<&str> = defaults.split("#COLORS_").skip(1).collect();
    assert!(lines.len() >= 15, "{lines:?}");
    for variable in lines.iter().flat_map(|line| line.split('=').next()) {
        // which is of the backup
        if variable == "BACKUPS" {
            continue;
        }
        check("colors.default", format!("--{}", variable.to_lowercase().replace('_', "-")));
    }
}

//! The static binary where there is nothing else: no libraries, no devices, no configuration of the
//! host.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::client::Client;
use crate::common::harness::{Scratch, Server, copy_program, skip};

/// Names the binary to try out: the static one that `packaging/dist` compiles.
const BINARY: &str = "STATIC_BINARY";

#[test]
fn the_static_binary_needs_nothing_but_its_seed() {
    let Some(binary) = std::env::var_os(BINARY).filter(|_| rustix::process::geteuid().is_root())
    else {
        return skip(&format!("{BINARY} is not set, or the user is not root"));
    };
    let scratch = Scratch::new();
    let root = scratch.0.join("root");
    fs::create_dir(&root).unwrap();
    copy_program(binary, root.join("colors"));
    fs::write(root.join("seed.json"), include_bytes!("../../seed/colors.json")).unwrap();
    let mut command = Command::new("chroot");
    command.arg(&root).args([
        "/colors",
        "--listen",
        "127.0.0.1:0",
        "--listen",
        "unix:/s",
        "--seed",
        "/seed.json",
    ]);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let server = Server::spawn(command);
    assert_eq!(server.list().matches("\"name\"").count(), 148);
    assert_eq!(server.ask("POST", "/colors", r#"{"name":"ink","value":"1"}"#).status, 201);
    assert_eq!(Client::on_unix(root.join("s")).ask("GET", "/colors/ink", "").status, 200);
    let log = server.stop();
    assert!(log.ends_with("stopped\n"), "{log}");
    let mut left: Vec<_> =
        fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["colors", "seed.json"]);
}

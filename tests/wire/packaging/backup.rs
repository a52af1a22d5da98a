//! How the backup script treats the copies of a list. `.ci/boot` runs its unit.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::harness::{Scratch, Server};
use crate::wire::packaging::{ROOT, files};
use crate::wire::recipes::path_with;

/// FILE of a service, and a directory for copies of its list.
struct Backup {
    scratch: Scratch,
    file: String,
}

impl Backup {
    /// With copies of earlier days: each is what it is called.
    fn new(days: &[&str]) -> Self {
        let scratch = Scratch::new();
        fs::create_dir(scratch.0.join("copies")).unwrap();
        for day in days {
            scratch.write(&format!("copies/colors-202001{day}T000000Z.json"), day);
        }
        let file = scratch.file("colors.db");
        Self { scratch, file }
    }

    fn serve(&self) -> Server {
        Server::with_data(r#"[{"name":"ink","value":"1"}]"#, &self.file, &[])
    }

    /// Runs the script as colors-backup.service does.
    fn run(&self, keep: &str) -> Output {
        let mut command = Command::new(Path::new(ROOT).join("packaging/backup"));
        command.env_clear().env("PATH", path_with(""));
        command.env("STATE_DIRECTORY", self.scratch.0.join("copies"));
        command.env("COLORS_DATA", &self.file).env("COLORS_BACKUPS", keep);
        // of /etc/default/colors: no start without a token file, which the unit of the service has
        command.env("COLORS_PRIVATE", "true");
        command.output().unwrap()
    }

    /// What the copies contain, oldest first.
    fn copies(&self) -> Vec<String> {
        let directory = self.scratch.0.join("copies");
        let names =
            files(&directory).into_iter().map(|file| file.split(' ').next().unwrap().to_owned());
        names.map(|name| fs::read_to_string(directory.join(name)).unwrap()).collect()
    }
}

/// What a copy of the list of [`Backup::serve`] contains.
const COPY: &str = "{\"data\":[{\"name\":\"ink\",\"value\":\"1\"}]}\n";

#[test]
fn a_backup_beside_the_service_is_its_list_for_its_owner_alone_and_a_seed() {
    let backup = Backup::new(&[]);
    let server = backup.serve();
    server.ask("POST", "/colors", r#"{"name":"late","value":"2"}"#).expect_status(201);
    let output = backup.run("7");
    assert!(output.status.success(), "{output:?}");
    let copies = files(&backup.scratch.0.join("copies"));
    assert_eq!(copies.len(), 1, "{copies:?}");
    let name = copies[0].strip_suffix(" 600").expect("it is its owner's alone");
    assert!(name.starts_with("colors-20") && name.ends_with("Z.json"), "{name}");
    assert_eq!(name.len(), "colors-20200101T000000Z.json".len(), "{name}");
    assert_eq!(backup.copies(), [format!("{}\n", server.list())]);
    let restored =
        Server::start(&["--seed", backup.scratch.0.join("copies").join(name).to_str().unwrap()]);
    assert_eq!(restored.list(), server.list());
}

#[test]
fn a_backup_keeps_the_newest_copies() {
    for (keep, expected) in [
        ("1", &[COPY] as &[&str]),
        ("2", &["03", COPY]),
        ("4", &["01", "02", "03", COPY]),
        ("9", &["01", "02", "03", COPY]),
    ] {
        let backup = Backup::new(&["01", "02", "03"]);
        let _server = backup.serve();
        let output = backup.run(keep);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(backup.copies(), expected, "{keep}");
    }
}

#[test]
fn a_copy_that_a_wrong_clock_makes_look_old_is_kept_and_the_backup_fails() {
    let backup = Backup::new(&["01", "02"]);
    let future = backup.scratch.write("copies/colors-29990101T000000Z.json", "of 2999");
    let _server = backup.serve();
    let output = backup.run("1");
    let error = String::from_utf8(output.stderr).unwrap();
    let expected = (Some(1), ["01", "02", COPY, "of 2999"].map(str::to_owned).to_vec());
    assert_eq!((output.status.code(), backup.copies()), expected, "{error}");
    let why = format!("and removed none: the clock was wrong, now or when it made {future}; ");
    assert!(error.contains(&why), "{error}");
    fs::remove_file(future).unwrap();
    assert!(backup.run("1").status.success());
    assert_eq!(backup.copies(), ["01", "02", COPY]);
}

#[test]
fn a_backup_that_fails_keeps_every_copy_and_says_why() {
    let no_list = "it does not exist, or is empty; name the file of a service, or a copy, with \
                   --data\nbackup: FILE cannot be read, see above";
    let no_database = "it is not a database of colors; name another file with --data\nbackup: FILE cannot be read, see above";
    for (file, keep, message) in [
        (None, "1", no_list),
        (Some(""), "1", no_list),
        (Some("new"), "1", no_database),
        (None, "0", "backup: COLORS_BACKUPS=0 is not a number from 1"),
        (None, "-1", "backup: COLORS_BACKUPS=-1 is not a number from 1"),
        (None, "two", "backup: COLORS_BACKUPS=two is not a number from 1"),
    ] {
        let backup = Backup::new(&["01", "02"]);
        if let Some(content) = file {
            fs::write(&backup.file, content).unwrap();
        }
        let output = backup.run(keep);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        let message = message.replace("FILE", &backup.file);
        assert!(error.trim_end().ends_with(&message), "{error}");
        assert_eq!(backup.copies(), ["01", "02"]);
    }
}

//! What is installed, by `make install` into a root of its own, and how the backup script treats the copies. The package for Debian is tried
//! out by `.ci/package`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::harness::{Scratch, colors, is_installed};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Everything that `make install` installs, with its mode.
const FILES: [(u32, &str); 22] = [
    (0o644, "etc/default/colors"),
    (0o755, "usr/local/bin/colors"),
    (0o755, "usr/local/lib/colors/backup"),
    (0o644, "usr/local/lib/systemd/system/colors-backup.service"),
    (0o644, "usr/local/lib/systemd/system/colors-backup.timer"),
    (0o644, "usr/local/lib/systemd/system/colors.service"),
    (0o644, "usr/local/share/bash-completion/completions/colors"),
    (0o644, "usr/local/share/colors/colors.json"),
    (0o644, "usr/local/share/doc/colors/CHANGELOG.md"),
    (0o644, "usr/local/share/doc/colors/LICENSE"),
    (0o644, "usr/local/share/doc/colors/README.md"),
    (0o644, "usr/local/share/doc/colors/docs/durability.md"),
    (0o644, "usr/local/share/doc/colors/docs/http.md"),
    (0o644, "usr/local/share/doc/colors/docs/limits.md"),
    (0o644, "usr/local/share/doc/colors/docs/operating.md"),
    (0o644, "usr/local/share/doc/colors/docs/page.webp"),
    (0o644, "usr/local/share/doc/colors/examples/activated.conf"),
    (0o644, "usr/local/share/doc/colors/examples/colors.socket"),
    (0o644, "usr/local/share/doc/colors/examples/colors.rules.yml"),
    (0o644, "usr/local/share/doc/colors/examples/nginx.conf"),
    (0o644, "usr/local/share/fish/vendor_completions.d/colors.fish"),
    (0o644, "usr/local/share/man/man8/colors.8"),
    (0o644, "usr/local/share/zsh/site-functions/_colors"),
];

/// Runs make for a root in this directory, with this build in place of the release's.
#[track_caller]
fn make(scratch: &Scratch, target: &str) {
    let binary = colors(&[]).get_program().to_str().unwrap().to_owned();
    let mut command = Command::new("make");
    command.args([target, &format!("DESTDIR={}", scratch.0.display()), &format!("BINARY={binary}")]);
    let output = command.env_remove("PREFIX").current_dir(ROOT).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The files below a directory, with their modes, sorted by path.
fn files(directory: &Path) -> Vec<(u32, String)> {
    let (mut found, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(current) = directories.pop() {
        for entry in fs::read_dir(current).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            match metadata.is_dir() {
                true => directories.push(path),
                false => {
                    found.push((metadata.permissions().mode() & 0o7777, path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned()))
                }
            }
        }
    }
    found.sort_by(|(_, first), (_, second)| first.cmp(second));
    found
}

#[test]
fn make_uninstall_removes_what_make_install_installed() {
    if !is_installed("make") {
        return;
    }
    let scratch = Scratch::new();
    make(&scratch, "install");
    assert_eq!(files(&scratch.0), FILES.map(|(mode, path)| (mode, path.to_owned())));
    let program = scratch.0.join("usr/local/bin/colors");
    assert!(Command::new(program).arg("--version").stdout(Stdio::null()).status().unwrap().success());
    make(&scratch, "uninstall");
    assert_eq!(files(&scratch.0), []);
    for directory in ["usr/local/lib/colors", "usr/local/share/colors", "usr/local/share/doc/colors"] {
        assert!(!scratch.0.join(directory).exists(), "{directory}");
    }
    // a second time there is nothing to do
    make(&scratch, "uninstall");
}

#[test]
fn changed_options_and_the_list_outlive_make_install_and_uninstall() {
    if !is_installed("make") {
        return;
    }
    let scratch = Scratch::new();
    make(&scratch, "install");
    let options = scratch.write("etc/default/colors", "COLORS_READ_ONLY=true\n");
    fs::create_dir_all(scratch.0.join("var/lib/colors")).unwrap();
    let list = scratch.write("var/lib/colors/colors.json", "[]");
    make(&scratch, "install");
    make(&scratch, "uninstall");
    assert_eq!(
        files(&scratch.0).into_iter().map(|(_, path)| path).collect::<Vec<_>>(),
        ["etc/default/colors", "var/lib/colors/colors.json"]
    );
    assert_eq!(
        (fs::read_to_string(options).unwrap().as_str(), fs::read_to_string(list).unwrap().as_str()),
        ("COLORS_READ_ONLY=true\n", "[]")
    );
}

/// Runs systemd-analyze; gives whether it is content, and all that it says.
fn analyze(directory: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new("systemd-analyze").args(arguments).current_dir(directory).output().unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn the_installed_units_are_sound_and_leave_little_exposed() {
    if !is_installed("make") || !is_installed("systemd-analyze") {
        return;
    }
    let scratch = Scratch::new();
    make(&scratch, "install");
    let units = scratch.0.join("units");
    fs::create_dir(&units).unwrap();
    let names = ["colors.service", "colors-backup.service", "colors-backup.timer"];
    for name in names {
        let unit = fs::read_to_string(scratch.0.join("usr/local/lib/systemd/system").join(name)).unwrap();
        assert!(!unit.contains("/usr/") || unit.matches("/usr/").count() == unit.matches("/usr/local/").count(), "{unit}");
        // systemd-analyze looks for the programs that they name
        fs::write(units.join(name), unit.replace("/usr/local/", &format!("{}/usr/local/", scratch.0.display()))).unwrap();
    }
    for name in names {
        assert_eq!(analyze(&units, &["verify", "--man=no", &format!("./{name}")]), (true, String::new()), "{name}");
    }
    for name in &names[..2] {
        let (_, report) = analyze(&units, &["security", "--offline=yes", "--no-pager", &format!("./{name}")]);
        let exposure = report.split(&format!("exposure level for {name}: ")).nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        assert!(exposure.parse::<f64>().unwrap() <= 0.9, "{report}");
    }
}

#[test]
fn the_debian_changelog_is_of_this_version() {
    let changelog = include_str!("../../packaging/debian/changelog");
    assert!(changelog.starts_with(concat!("colors (", env!("CARGO_PKG_VERSION"), ") ")), "{changelog}");
}

#[test]
fn every_variable_of_the_default_file_is_one_of_an_option_or_of_the_backup() {
    let help = String::from_utf8(colors(&["--help"]).output().unwrap().stdout).unwrap();
    let defaults = include_str!("../../packaging/systemd/colors.default");
    let variables: Vec<&str> = defaults.lines().filter_map(|line| line.strip_prefix("#COLORS_")?.split('=').next()).collect();
    assert!(variables.len() >= 14, "{variables:?}");
    for variable in variables.into_iter().filter(|variable| *variable != "BACKUPS") {
        let option = format!("--{}", variable.to_lowercase().replace('_', "-"));
        assert!(help.split_whitespace().any(|word| word.split('[').next() == Some(&option)), "{option}");
    }
}

#[test]
fn the_shell_scripts_are_clean() {
    if !is_installed("shellcheck") {
        return;
    }
    let output = Command::new("shellcheck")
        .args(["packaging/backup", "packaging/debian/postrm", ".ci/boot", ".ci/package", ".ci/run"])
        .current_dir(ROOT)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A list and a directory for its copies.
struct Backup {
    scratch: Scratch,
    list: PathBuf,
}

impl Backup {
    fn new() -> Self {
        let scratch = Scratch::new();
        fs::create_dir(scratch.0.join("copies")).unwrap();
        let list = scratch.0.join("colors.json");
        Self { scratch, list }
    }

    /// Runs the script as colors-backup.service does.
    fn run(&self, keep: &str) -> Output {
        let mut command = Command::new(Path::new(ROOT).join("packaging/backup"));
        command.env("COLORS_DATA", &self.list).env("STATE_DIRECTORY", self.scratch.0.join("copies")).env("COLORS_BACKUPS", keep);
        command.output().unwrap()
    }

    /// Puts copies of earlier days into the directory: each is what it is called.
    fn with_copies(self, days: &[&str]) -> Self {
        for day in days {
            self.scratch.write(&format!("copies/colors-2020-01-{day}T00:00:00Z.json"), day);
        }
        self
    }

    /// What the copies contain, oldest first.
    fn copies(&self) -> Vec<String> {
        let directory = self.scratch.0.join("copies");
        files(&directory)
            .iter()
            .filter(|(_, path)| path != "last")
            .map(|(_, path)| fs::read_to_string(directory.join(path)).unwrap())
            .collect()
    }
}

#[test]
fn a_backup_copies_the_list_under_its_date_for_its_owner_alone() {
    let backup = Backup::new();
    fs::copy(Path::new(ROOT).join("seed/colors.json"), &backup.list).unwrap();
    let output = backup.run("7");
    assert!(output.status.success(), "{output:?}");
    let mut copies = files(&backup.scratch.0.join("copies"));
    // when that was, for everybody
    assert_eq!(copies.pop(), Some((0o644, "last".to_owned())));
    assert_eq!(copies.len(), 1, "{copies:?}");
    let (mode, name) = &copies[0];
    assert_eq!(*mode, 0o600);
    assert!(name.starts_with("colors-20") && name.ends_with("Z.json") && name.len() == "colors-2020-01-01T00:00:00Z.json".len(), "{name}");
    assert_eq!(backup.copies(), [include_str!("../../seed/colors.json")]);
}

#[test]
fn a_backup_keeps_the_newest_copies() {
    for (keep, expected) in
        [("1", &["new"] as &[&str]), ("2", &["03", "new"]), ("4", &["01", "02", "03", "new"]), ("9", &["01", "02", "03", "new"])]
    {
        let backup = Backup::new().with_copies(&["01", "02", "03"]);
        fs::write(&backup.list, "new").unwrap();
        let output = backup.run(keep);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(backup.copies(), expected, "{keep}");
    }
}

#[test]
fn an_unchanged_list_costs_no_copy() {
    let backup = Backup::new().with_copies(&["01", "02"]);
    fs::write(&backup.list, "02").unwrap();
    for _ in 0..3 {
        assert!(backup.run("2").status.success());
        assert_eq!(backup.copies(), ["01", "02"]);
        fs::remove_file(backup.scratch.0.join("copies/last")).expect("it was checked that the newest copy is the list");
    }
}

#[test]
fn a_backup_that_fails_keeps_every_copy_and_says_why() {
    for (list, keep, message) in [
        (None, "1", "is missing, empty or not readable"),
        (Some(""), "1", "is missing, empty or not readable"),
        (Some("new"), "0", "COLORS_BACKUPS=0 is not a number from 1"),
        (Some("new"), "-1", "COLORS_BACKUPS=-1 is not a number from 1"),
        (Some("new"), "two", "COLORS_BACKUPS=two is not a number from 1"),
    ] {
        let backup = Backup::new().with_copies(&["01", "02"]);
        if let Some(content) = list {
            fs::write(&backup.list, content).unwrap();
        }
        let output = backup.run(keep);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8(output.stderr).unwrap().trim_end().ends_with(message), "{message}");
        assert_eq!(backup.copies(), ["01", "02"]);
        assert!(!backup.scratch.0.join("copies/last").exists());
    }
}

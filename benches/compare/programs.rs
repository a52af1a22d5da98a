//! Builds the product and the peers, and finds what is installed. Starts no server.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::scratch;

/// The directory of this crate; the product's is its parent.
pub(crate) const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Where the programs built from source are.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The product.
    pub(crate) colors: PathBuf,
    /// The API on axum.
    pub(crate) axum: PathBuf,
    /// The API on actix-web.
    pub(crate) actix: PathBuf,
}

impl Programs {
    /// Builds them all, but for a product that is given.
    pub(crate) fn build(colors: Option<&Path>) -> Result<Self, Failure> {
        let here = Path::new(HERE);
        let colors = match colors {
            Some(path) => path.canonicalize().map_err(|error| Failure::File(path.to_owned(), error))?,
            None => build(&here.join("../Cargo.toml"), "colors")?,
        };
        let axum = build(&here.join("Cargo.toml"), "peer-axum")?;
        let actix = build(&here.join("Cargo.toml"), "peer-actix")?;
        Ok(Self { colors, axum, actix })
    }
}

/// Builds one program and says where cargo put it.
fn build(manifest: &Path, name: &str) -> Result<PathBuf, Failure> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--message-format", "json-render-diagnostics", "--bin", name, "--manifest-path"]);
    // The product's configuration is found from its own directory.
    cargo.arg(manifest).current_dir(manifest.parent().expect("a manifest lies in a directory")).stderr(Stdio::inherit());
    let messages = output(cargo)?;
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == name;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    };
    messages.lines().find_map(executable).ok_or(Failure::Unreadable("cargo", "executable"))
}

/// Runs a program to its end and takes what it prints.
///
/// # Errors
/// When it cannot be started, or reports an error.
pub(crate) fn output(mut command: Command) -> Result<String, Failure> {
    let program = PathBuf::from(command.get_program());
    let output = command.stdin(Stdio::null()).output().map_err(|error| Failure::Start(program.clone(), error))?;
    if !output.status.success() {
        let words = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        return Err(Failure::Ended(program, scratch::tail(&words)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where an installed program is.
///
/// # Errors
/// When it is not installed; the error names its Debian package.
pub(crate) fn installed(name: &'static str, package: &'static str) -> Result<PathBuf, Failure> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Debian keeps nginx out of the path of ordinary users.
    let directories = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let mut candidates = directories.map(|directory| directory.join(OsStr::new(name)));
    candidates.find(|candidate| candidate.is_file()).ok_or(Failure::Missing(name, package))
}

//! json-server, installed by npm below this crate's target directory. Gives it the colors with the `id` that it finds them by.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use crate::colors::Color;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::programs::{self, HERE};
use crate::scratch::Scratch;

/// Its file.
#[derive(Serialize)]
struct Database<'a> {
    /// Served as `/colors`.
    colors: Vec<Item<'a>>,
}

/// A color in its file.
#[derive(Serialize)]
struct Item<'a> {
    /// The name once more: what json-server looks for.
    id: &'a str,
    /// The color's name.
    name: &'a str,
    /// The color's value.
    value: &'a str,
}

/// The command that serves these colors.
///
/// # Errors
/// When node is not installed, or npm cannot install json-server.
pub(crate) fn command(kind: Kind, scratch: &Scratch, colors: &[Color], port: u16) -> Result<Command, Failure> {
    let file = scratch.write("db.json", &database(colors))?;
    serve(kind, scratch, &file, port)
}

/// Its file, with these colors.
pub(crate) fn database(colors: &[Color]) -> String {
    let items = colors.iter().map(|Color { name, value }| Item { id: name, name, value });
    serde_json::to_string(&Database { colors: items.collect() }).expect("strings always serialize")
}

/// The command that serves such a file, from a scratch directory that need not be the file's.
///
/// # Errors
/// When node is not installed, or npm cannot install json-server.
pub(crate) fn serve(kind: Kind, scratch: &Scratch, file: &Path, port: u16) -> Result<Command, Failure> {
    scratch.directory("public")?; // 1.0.0-beta.15 demands it in production
    let (version, quiet) = if kind == Kind::JsonServer0 { ("0.17.4", Some("--quiet")) } else { ("1.0.0-beta.15", None) };
    let mut command = Command::new(install(version)?);
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]).args(quiet).arg(file);
    command.env("NODE_ENV", "production");
    Ok(command)
}

/// The program of this version, installed unless it is already.
fn install(version: &str) -> Result<PathBuf, Failure> {
    let name = format!("json-server-{version}");
    let prefix = Path::new(HERE).join("target").join(name);
    let program = prefix.join("node_modules/.bin/json-server");
    programs::installed("node", "nodejs")?;
    if !program.is_file() {
        eprintln!("installing json-server {version}");
        let mut npm = Command::new(programs::installed("npm", "npm")?);
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(prefix).arg(format!("json-server@{version}"));
        programs::output(npm)?;
    }
    Ok(program)
}

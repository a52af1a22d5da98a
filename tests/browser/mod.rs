//! The page in a real browser: headless Chromium, driven as a person would. One file per topic.
//!
//! Without `chromium` and `chromedriver` (Debian: chromium, chromium-driver) the tests say that
//! they are skipped; with the variable `CI` set they fail.

mod actions;
mod axe;
mod changing;
mod driver;
mod everybody;
mod files;
mod foreign;
mod live;
mod looking;
mod older;
mod opened;
mod ordering;
mod proxied;
mod tiles;
mod tokens;
mod undoing;

use std::fmt::Display;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::harness::{Server, is_installed, skip};

/// A service with colors of these names and values.
fn with_colors(colors: impl IntoIterator<Item = (impl Display, impl Display)>) -> Server {
    let color = |(name, value)| json!({"name": format!("{name}"), "value": format!("{value}")});
    let colors: Vec<Value> = colors.into_iter().map(color).collect();
    Server::with_seed(&json!(colors).to_string(), &[])
}

/// Whether the tests can run. Chromium ends where there is no font at all.
fn has_chromium() -> bool {
    if !is_installed("chromium") || !is_installed("chromedriver") {
        return false;
    }
    let is_bare = Command::new("fc-list").output().is_ok_and(|fonts| fonts.stdout.is_empty());
    if is_bare {
        skip("no font is installed");
    }
    !is_bare
}

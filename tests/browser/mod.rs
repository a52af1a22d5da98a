//! The page in a real browser: headless Chromium, driven as a person would. One file per topic.
//!
//! Without `chromium` and `chromedriver` (Debian: chromium, chromium-driver) the tests say that they are skipped; with the variable
//! `CI` set they fail.

mod changing;
mod driver;
mod everybody;
mod live;
mod looking;
mod pictures;
mod proxied;
mod tiles;
mod tokens;
mod undoing;

//! The page in a real browser: headless Chromium, driven as a person would, against the real binary. One file per topic.
//!
//! Without `chromium` and `chromedriver` (Debian: chromium, chromium-driver) the tests say that they are skipped; with the variable
//! `CI` set they fail.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test's name says what it is about, a panic fails it, and what it cannot check here it prints"
)]

mod changing;
#[path = "../wire/client.rs"]
#[allow(dead_code, reason = "the wire tests need the rest of it")]
mod client;
mod driver;
mod everybody;
#[allow(dead_code, reason = "the wire tests need the rest of it")]
#[path = "../wire/harness.rs"]
mod harness;
mod live;
mod looking;
mod pictures;
mod proxied;
#[allow(dead_code, reason = "the wire tests need the rest of it")]
#[path = "../wire/proxy.rs"]
mod proxy;
mod tiles;
mod tokens;
mod undoing;

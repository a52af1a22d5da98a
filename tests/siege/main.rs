//! The service under attack, from outside: one test an attack, one after the other. A program of its own, so that nothing else is timed
//! beside thousands of connections; `flood` has what attacks are made of, and the check that follows every one.

#![allow(
    clippy::missing_docs_in_private_items,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test's name says what it is about, a panic fails it, and what it cannot check here it prints"
)]

mod attacks;
mod crowds;
mod flood;
#[path = "../wire/harness.rs"]
#[allow(dead_code, reason = "the other tests need the rest of it")]
mod harness;

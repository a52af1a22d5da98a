//! The service under attack, from outside: one test per attack. A program of its own, so that nothing else is timed beside thousands of
//! connections; `flood` has what attacks are made of, and the check that follows every one.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod attacks;
#[path = "../wire/client.rs"]
#[allow(dead_code, reason = "the other tests need the rest of it")]
mod client;
mod crowds;
mod flood;
#[path = "../wire/harness.rs"]
#[allow(dead_code, reason = "the other tests need the rest of it")]
mod harness;
mod limits;

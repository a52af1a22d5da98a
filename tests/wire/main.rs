//! The service from outside: the real binary, over raw sockets. One file a topic; `harness` starts servers and checks every response.

#![allow(
    clippy::missing_docs_in_private_items,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test's name says what it is about, a panic fails it, and what it cannot check here it prints"
)]

mod browsers;
mod chroot;
mod connections;
mod contract;
mod durable;
mod framing;
#[allow(dead_code, reason = "the siege needs the rest of it")]
mod harness;
mod listening;
mod model;
mod nginx;
mod openapi;
mod parallel;
mod readme;
mod restart;
mod startup;
mod stopping;
mod systemd;
mod token;

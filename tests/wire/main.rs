//! The service from outside: the real binary, over raw sockets. One file a topic; `harness` starts servers and checks every response.

#![allow(
    clippy::missing_docs_in_private_items,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test's name says what it is about, and a panic fails it"
)]

mod chroot;
mod connections;
mod contract;
mod framing;
mod harness;
mod listening;
mod model;
mod nginx;
mod parallel;
mod readme;
mod restart;
mod startup;
mod stopping;
mod systemd;

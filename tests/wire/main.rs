//! The service from outside: the real binary, over raw sockets. One file per topic; `harness` starts servers, `client` checks every
//! response.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod browsers;
mod chroot;
#[allow(dead_code, reason = "the siege needs the rest of it")]
mod client;
mod connections;
mod contract;
mod data_file;
mod durable;
mod framing;
#[allow(dead_code, reason = "the siege needs the rest of it")]
mod harness;
mod http_rules;
mod listening;
mod logging;
mod metrics;
mod model;
mod nginx;
mod nginx_front;
mod notices;
mod openapi;
mod options;
mod packaging;
mod page;
mod parallel;
mod proxy;
mod readme;
mod restart;
mod slow_disk;
mod startup;
mod stopping;
mod systemd;
mod token;

//! Tests of the real binary. One test program: it is linked once, and its tests run in parallel.

#![allow(clippy::unwrap_used, reason = "a test's name says what it is about, and a panic fails it")]

mod browser;
/// What the tests share: `harness` starts services, `process` watches them, `client` and `proxy`
/// speak HTTP to them, directly and through nginx, and `etcd` starts etcd.
mod common {
    pub(crate) mod client;
    pub(crate) mod etcd;
    pub(crate) mod harness;
    pub(crate) mod process;
    pub(crate) mod proxy;
}
/// The service under attack: one test per attack. `flood` has what attacks are made of, and the
/// check that follows every one.
mod siege {
    mod attacks;
    mod flood;
}
/// The service over raw sockets and beside the programs that it works with. One file per topic.
mod wire {
    mod browsers;
    mod data_file;
    mod database_files;
    mod durable;
    mod etcd;
    mod etcd_failures;
    mod etcd_histories;
    mod etcd_hosts;
    mod etcd_lists;
    mod etcd_users;
    mod failing_disk;
    mod follow_recipes;
    mod following;
    mod following_strangers;
    mod framing;
    mod histories;
    mod listening;
    mod litestream;
    mod logging;
    mod machines;
    mod monitoring;
    mod nginx;
    mod nginx_front;
    mod notices;
    mod openapi;
    mod operations;
    mod options;
    mod other_programs;
    mod packaging;
    mod power_cut;
    mod readme;
    pub(crate) mod recipes;
    mod startup;
    mod systemd;
    mod token;
    mod upgrade;
    mod waiting;
    mod which_build;
}

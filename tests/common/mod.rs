//! What the tests share: `harness` starts services, `process` watches them, `client` and `proxy`
//! speak HTTP to them, directly and through nginx, and `etcd` starts etcd.

pub(crate) mod client;
pub(crate) mod etcd;
pub(crate) mod harness;
pub(crate) mod process;
pub(crate) mod proxy;

//! What the tests share: `harness` starts services, `client` and `proxy` speak HTTP to them, directly and through nginx.

pub(crate) mod client;
pub(crate) mod harness;
pub(crate) mod proxy;

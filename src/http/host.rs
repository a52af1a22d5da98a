//! Host as a value (RFC 9110 §7.2). Does not decide which hosts a service has.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::syntax::has_valid_escapes;

/// The value of Host, or the authority of a target: `uri-host [":" port]`, and the host not empty
/// (RFC 3986 §3.2.2).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Host {
    text: String,
    /// It is an IP address, or `localhost` or a name below it (RFC 6761 §6.3): no answer of a DNS
    /// server leads to these.
    pub(crate) needs_no_dns: bool,
}

impl Host {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, port) = split_port(text);
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let is_ipv6 = address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        let is_allowed =
            |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte);
        let is_name = !name.is_empty() && name.bytes().all(is_allowed) && has_valid_escapes(name);
        if !(is_ipv6 || is_name) || !port.bytes().skip(1).all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let name = without_root(name);
        let is_ipv4 = name.parse::<Ipv4Addr>().is_ok();
        let top = name.rsplit('.').next().unwrap_or_default();
        let needs_no_dns = is_ipv6 || is_ipv4 || top.eq_ignore_ascii_case("localhost");
        Some(Self { text: text.to_owned(), needs_no_dns })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The host without its port.
    pub(crate) fn name(&self) -> &str {
        split_port(&self.text).0
    }

    /// Whether this is its name, in upper or lower case.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        without_root(self.name()).eq_ignore_ascii_case(without_root(name))
    }
}

/// Splits before the colon of the port; an IPv6 address has colons of its own in its brackets.
fn split_port(host: &str) -> (&str, &str) {
    let brackets_end = host.find(']').unwrap_or(0);
    let colon = host[brackets_end..].find(':').map(|index| brackets_end + index);
    host.split_at(colon.unwrap_or(host.len()))
}

/// A host name without the dot of the DNS root, which may follow any (RFC 1034 §3.1).
fn without_root(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

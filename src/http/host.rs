//! Host as a value (RFC 9110 §7.2). Does not decide which hosts a service has.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::syntax::{has_valid_escapes, split_at_byte};

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
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let needs_no_dns = if let Some(rest) = text.strip_prefix('[') {
            let (address, port) = rest.split_once(']')?;
            let is_valid = address.parse::<Ipv6Addr>().is_ok()
                && port.strip_prefix(':').map_or(port.is_empty(), is_port);
            is_valid.then_some(true)?
        } else {
            let (name, port) = split_port(text);
            let is_allowed =
                |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte);
            let is_valid = !name.is_empty()
                && is_port(port)
                && name.bytes().all(is_allowed)
                && has_valid_escapes(name);
            let name = is_valid.then(|| without_root(name))?;
            name.parse::<Ipv4Addr>().is_ok()
                || name.rsplit('.').next().is_some_and(|top| top.eq_ignore_ascii_case("localhost"))
        };
        Some(Self { text: text.to_owned(), needs_no_dns })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The host without its port, unless it is an IPv6 address.
    pub(crate) fn name(&self) -> &str {
        split_port(&self.text).0
    }

    /// Whether this is its name, in upper or lower case.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        without_root(self.name()).eq_ignore_ascii_case(without_root(name))
    }
}

/// Splits `host[:port]`, which must not be an IPv6 address. The port is empty if there is none.
fn split_port(host: &str) -> (&str, &str) {
    let (name, port) = split_at_byte(host, b':');
    (name, port.unwrap_or_default())
}

/// A host name without the dot of the DNS root, which may follow any (RFC 1034 §3.1).
fn without_root(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

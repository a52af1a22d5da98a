//! Pieces of the grammar of RFC 9110, RFC 9112 and RFC 3986, for the server and for applications
//! that read fields and targets themselves. Does not decide which hosts are answered.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Whether a byte is allowed in a token, such as a method or a field name (RFC 9110 §5.6.2).
pub(super) fn is_tchar(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.')
        || matches!(byte, b'^'..=b'`' | b'|' | b'~')
}

/// Whether this is a token (RFC 9110 §5.6.2).
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.as_bytes().iter().all(is_tchar)
}

/// Splits an absolute-form target into authority and path with query (RFC 9112 §3.2.2). The scheme
/// is `http` or `https`, in any case (RFC 3986 §3.1). `None` for any other target.
pub fn split_absolute_form(target: &[u8]) -> Option<(&[u8], &[u8])> {
    // Nearly all targets are in origin-form.
    if target.starts_with(b"/") {
        return None;
    }
    let scheme_end = target.windows(3).position(|bytes| bytes == b"://")?;
    let (scheme, rest) = (&target[..scheme_end], &target[scheme_end + 3..]);
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return None;
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    Some(rest.split_at(end))
}

/// Parses digits alone: `from_str_radix` would allow a plus sign before them. `None` if there are
/// none, or if the number does not fit 64 bits.
pub(super) fn parse_digits(digits: &[u8], radix: u32) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = char::from(*byte).to_digit(radix)?;
        number.checked_mul(radix.into())?.checked_add(digit.into())
    })
}

/// Whether this is the name of a field, in any case (RFC 9110 §5.1). `known` is in the case in
/// which it is registered and most clients send it: to compare that is faster. Inlined, so that for
/// most names the lengths differ, and no more is compared.
#[inline(always)]
pub fn is_field(name: &[u8], known: &str) -> bool {
    name == known.as_bytes() || name.eq_ignore_ascii_case(known.as_bytes())
}

/// Combines the values of field lines of one name: sets the first, and appends each further one
/// after a comma (RFC 9110 §5.3). Each byte outside ASCII becomes a question mark, so that the text
/// is no longer than the lines. No registered field has such bytes.
pub fn append_value(field: &mut Option<String>, value: &[u8]) {
    let ascii = value.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' });
    match field {
        Some(joined) => {
            joined.push_str(", ");
            joined.extend(ascii);
        }
        None => *field = Some(ascii.collect()),
    }
}

/// The members of a comma-separated list (RFC 9110 §5.6.1), but for empty ones. Ignores quotes.
pub fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// Whether each percent sign begins an escape of two hexadecimal digits (RFC 3986 §2.1).
pub fn has_valid_escapes(text: &[u8]) -> bool {
    let is_escape = |rest: &[u8]| {
        rest.first_chunk::<2>().is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    text.split(|byte| *byte == b'%').skip(1).all(is_escape)
}

/// The value of Host, or the authority of a target: `uri-host [":" port]` (RFC 9110 §7.2). The host
/// is not empty (RFC 9110 §4.2.1). All bytes are ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host<'a> {
    pub(super) text: &'a [u8],
    /// Whether clients find the host by DNS, so that DNS rebinding can use it. They reach an IP
    /// address, `localhost` and the names below `localhost` (RFC 6761 §6.3) without DNS.
    pub(super) needs_dns: bool,
}

const LOCALHOST: &[u8] = b"localhost";

impl<'a> Host<'a> {
    /// Parses a value of Host. `None` if it is not of the form `host[:port]`.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let name = without_port(text);
        // A shortcut: most clients on this host send one of these.
        if name == LOCALHOST || name == b"127.0.0.1" {
            return Some(Self { text, needs_dns: false });
        }
        if let Some(address) = name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")) {
            return is_address::<Ipv6Addr>(address).then_some(Self { text, needs_dns: false });
        }
        let without_dot = without_root(name);
        let needs_dns = !is_localhost(without_dot) && !is_address::<Ipv4Addr>(without_dot);
        is_reg_name(name).then_some(Self { text, needs_dns })
    }
}

/// Whether this is of the form `host[:port]`, as a value of Host has to be (RFC 9110 §7.2).
pub fn is_host(text: &str) -> bool {
    Host::parse(text.as_bytes()).is_some()
}

/// Whether a host, with or without a port, has this name. Ignores case, and the dot of the DNS root
/// at the end of either.
pub fn host_has_name(host: &str, name: &str) -> bool {
    let own = without_port(host.as_bytes());
    without_root(own).eq_ignore_ascii_case(without_root(name.as_bytes()))
}

/// A host without its port.
pub fn host_name(host: &str) -> &str {
    &host[..without_port(host.as_bytes()).len()]
}

/// Whether the name is `localhost` or a name below it, in any case.
fn is_localhost(name: &[u8]) -> bool {
    let (below, top) = name.split_at(name.len().saturating_sub(LOCALHOST.len()));
    top.eq_ignore_ascii_case(LOCALHOST) && (below.is_empty() || below.ends_with(b"."))
}

fn is_address<A: FromStr>(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(|text| text.parse::<A>().is_ok())
}

/// Removes a colon and the digits after it, of which there may be none (RFC 3986 §3.2.3), from the
/// end of a host. A colon that is left belongs to an IPv6 address, or makes the host malformed.
fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| !byte.is_ascii_digit()) {
        Some(colon) if host[colon] == b':' => &host[..colon],
        _ => host,
    }
}

/// Whether this is a `reg-name` (RFC 3986 §3.2.2) that is not empty.
fn is_reg_name(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let is_allowed = |byte: &u8| is_plain(byte) || b"_~!$&'()*+,;=%".contains(byte);
    // The first check is enough for nearly all hosts: they are names in the DNS.
    let is_valid = || name.iter().all(is_allowed) && has_valid_escapes(name);
    !name.is_empty() && (name.iter().all(is_plain) || is_valid())
}

/// A host name without the dot of the DNS root, which may end any name (RFC 1034 §3.1).
fn without_root(name: &[u8]) -> &[u8] {
    name.strip_suffix(b".").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_form_has_an_authority() {
        for (target, authority, path) in [
            ("http://example.org:80/path", "example.org:80", "/path"),
            ("HTTPS://example.org?x", "example.org", "?x"),
            ("Https://a", "a", ""),
        ] {
            let parts = (authority.as_bytes(), path.as_bytes());
            assert_eq!(split_absolute_form(target.as_bytes()), Some(parts), "{target}");
        }
        for target in ["/path", "/a?http://b", "*", "ftp://a/", "http:/a", "xhttp://a/", "://a"] {
            assert_eq!(split_absolute_form(target.as_bytes()), None, "{target}");
        }
    }

    #[test]
    fn a_number_is_digits_alone() {
        assert_eq!((parse_digits(b"0010", 10), parse_digits(b"aF", 16)), (Some(10), Some(175)));
        for text in ["", "+1", "-0", "1 ", "1a", "\u{e9}", "18446744073709551616"] {
            assert_eq!(parse_digits(text.as_bytes(), 10), None, "{text:?}");
        }
    }

    #[test]
    fn a_field_takes_no_more_memory_than_its_line() {
        let mut field = None;
        append_value(&mut field, &[0xff; 1000]);
        append_value(&mut field, "\u{e9}".as_bytes());
        assert_eq!(field, Some("?".repeat(1000) + ", ??"));
    }
}

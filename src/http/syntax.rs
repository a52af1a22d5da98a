//! Small pieces of the grammar of RFC 9110, RFC 9112 and RFC 3986 that several parsers need.

use std::net::Ipv6Addr;

/// Whether a byte is allowed in a token, such as a method or a field name (RFC 9110 §5.6.2).
pub(super) fn is_tchar(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

/// Splits an absolute-form target into authority and path with query (RFC 9112 §3.2.2). The scheme is `http` or `https`, in upper or lower
/// case (RFC 3986 §3.1).
pub(crate) fn split_absolute_form(target: &str) -> Option<(&str, &str)> {
    let rest = ["http://", "https://"].into_iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })?;
    Some(rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
}

/// Whether a value is `uri-host [":" port]`, and the host not empty (RFC 9110 §7.2, RFC 3986 §3.2.2).
pub(super) fn is_host(value: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = value.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<Ipv6Addr>().is_ok() && port.strip_prefix(':').map_or(port.is_empty(), is_port);
    }
    let (name, port) = split_port(value);
    // most names have nothing but these; the others are looked up
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let is_allowed = |byte: u8| is_plain(byte) || b"_~!$&'()*+,;=%".contains(&byte);
    !name.is_empty() && is_port(port) && (name.bytes().all(is_plain) || (name.bytes().all(is_allowed) && has_valid_escapes(name)))
}

/// Splits `host[:port]`, which must not be an IPv6 address. The port is empty if there is none.
pub(crate) fn split_port(host: &str) -> (&str, &str) {
    // on short strings much faster than `split_once`, in every request
    host.bytes().position(|byte| byte == b':').map_or((host, ""), |colon| (&host[..colon], &host[colon + 1..]))
}

/// Whether each percent sign begins an escape of two hexadecimal digits (RFC 3986 §2.1).
pub(crate) fn has_valid_escapes(text: &str) -> bool {
    let is_escape = |rest: &[u8]| rest.first_chunk::<2>().is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    text.as_bytes().split(|byte| *byte == b'%').skip(1).all(is_escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_form_has_an_authority() {
        assert_eq!(split_absolute_form("http://example.org:80/colors"), Some(("example.org:80", "/colors")));
        assert_eq!(split_absolute_form("HTTPS://example.org?x"), Some(("example.org", "?x")));
        assert_eq!(split_absolute_form("/colors"), None);
    }
}

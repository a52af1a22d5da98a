//! Small pieces of the grammar of RFC 9110, RFC 9112 and RFC 3986 that several parsers need.

/// Whether a byte is allowed in a token, such as a method or a field name (RFC 9110 §5.6.2).
pub(super) fn is_tchar(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

/// Splits an absolute-form target into authority and path with query (RFC 9112 §3.2.2). The scheme
/// is `http` or `https`, in upper or lower case (RFC 3986 §3.1).
pub(crate) fn split_absolute_form(target: &str) -> Option<(&str, &str)> {
    // as nearly all do
    if target.starts_with('/') {
        return None;
    }
    let (scheme, rest) = target.split_once("://")?;
    let is_known = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    is_known.then(|| rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
}

/// A number that consists of digits alone: `from_str_radix` would allow a plus sign before them.
pub(super) fn parse_digits(digits: &[u8], radix: u32) -> Option<u64> {
    let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, radix).ok()
}

/// Whether each percent sign begins an escape of two hexadecimal digits (RFC 3986 §2.1).
pub(crate) fn has_valid_escapes(text: &str) -> bool {
    let is_escape = |rest: &[u8]| {
        rest.first_chunk::<2>().is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    text.as_bytes().split(|byte| *byte == b'%').skip(1).all(is_escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_form_has_an_authority() {
        assert_eq!(
            split_absolute_form("http://example.org:80/colors"),
            Some(("example.org:80", "/colors"))
        );
        assert_eq!(split_absolute_form("HTTPS://example.org?x"), Some(("example.org", "?x")));
        assert_eq!(split_absolute_form("Https://a"), Some(("a", "")));
        for target in ["/colors", "/a?http://b", "*", "ftp://a/", "http:/a", "xhttp://a/", "://a"] {
            assert_eq!(split_absolute_form(target), None, "{target}");
        }
    }

    #[test]
    fn a_number_is_digits_alone() {
        assert_eq!((parse_digits(b"0010", 10), parse_digits(b"aF", 16)), (Some(10), Some(175)));
        for text in ["", "+1", "-0", "1 ", "1a", "\u{e9}", "18446744073709551616"] {
            assert_eq!(parse_digits(text.as_bytes(), 10), None, "{text:?}");
        }
    }
}

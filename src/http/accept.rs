//! Accept (RFC 9110 §12.5.1), as far as the service uses it: does a client ask for HTML?

use memchr::memchr2;

/// True if the value of Accept has `text/html` itself with a weight above 0, as browsers send it
/// when they open a page. `*/*`, which curl and `fetch` send, and `text/*` do not count.
pub(super) fn asks_for_html(value: &[u8]) -> bool {
    // quicker to see of what API clients send: `application/json` and `*/*` have no such letter
    memchr2(b'h', b'H', value).is_some() && split_unquoted(value, b',').any(is_html)
}

/// Splits at a separator, but not within a quoted string (RFC 9110 §5.6.4).
fn split_unquoted(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    value.split(move |byte| {
        let is_separator = *byte == separator && !is_quoted;
        is_quoted ^= *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && is_quoted && !is_escaped;
        is_separator
    })
}

/// Whether a media range is `text/html`, with a weight above 0.
fn is_html(range: &[u8]) -> bool {
    let mut parts = split_unquoted(range, b';').map(<[u8]>::trim_ascii);
    parts.next().is_some_and(|name| name.eq_ignore_ascii_case(b"text/html"))
        && !parts.any(is_zero_weight)
}

/// Whether a parameter is `q` with the value 0: "not acceptable" (RFC 9110 §12.4.2).
fn is_zero_weight(parameter: &[u8]) -> bool {
    let Some((b'q' | b'Q', rest)) = parameter.split_first() else { return false };
    rest.strip_prefix(b"=").is_some_and(|weight| {
        weight.starts_with(b"0") && weight.iter().all(|byte| matches!(byte, b'0' | b'.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_names_html_asks_for_it() {
        for (values, expected) in [
            (
                &["text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"][..],
                true,
            ),
            (&["text/html"], true),
            (&["application/json, Text/HTML;level=1;q=0.1"], true),
            (&["application/json", "text/html"], true),
            (&["text/html;q=0.001"], true),
            (&["TEXT/HTML"], true),
            (&[r#"a/b;c="d\", text/plain", text/html"#], true),
            (&[r#"a/b;c="\\",text/html"#], true),
            (&[r#"text/html;a=";q=0;""#], true),
            (&[r#"a/b;c=", text/html""#], false),
            (&[r#"a/b;c="\", text/html, ""#], false),
            (&["text/html ; Q=1.000"], true),
            (&[], false),
            (&[""], false),
            (&["*/*"], false),
            (&["text/*"], false),
            (&["application/json"], false),
            (&["text/html;q=0"], false),
            (&["*/*, text/html; q=0.000"], false),
            (&["text/htmlx"], false),
            (&["application/xhtml+xml"], false),
        ] {
            assert_eq!(
                values.iter().any(|value| asks_for_html(value.as_bytes())),
                expected,
                "{values:?}"
            );
        }
    }
}

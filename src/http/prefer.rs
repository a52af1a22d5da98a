//! Prefer (RFC 7240): for how many seconds a client would rather wait for a change than be told
//! that there is none.

use super::syntax::{is_tchar, parse_digits};

/// Longest wait, in seconds. A client that asks for more gets its answer after this time, and can
/// ask again.
const WAIT_SECONDS_MAX: u64 = 300;

/// The seconds of the first preference `wait` (RFC 7240 §4.3) in the value of a field line.
/// Malformed preferences are ignored.
pub(super) fn wait(value: &[u8]) -> Option<u16> {
    split(value, b',').find_map(seconds)
}

/// The seconds of a preference, if it is a well-formed `wait` (RFC 7240 §2).
fn seconds(preference: &[u8]) -> Option<u16> {
    let mut parts = split(preference, b';').map(<[u8]>::trim_ascii);
    let (name, word) = name_and_word(parts.next()?)?;
    let are_parameters = parts.all(|part| part.is_empty() || name_and_word(part).is_some());
    let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    if !name.eq_ignore_ascii_case(b"wait") || !are_parameters || !is_number {
        return None;
    }
    // Digits that do not fit into a u64 are a number above the limit.
    let seconds = parse_digits(&word, 10).unwrap_or(WAIT_SECONDS_MAX);
    Some(seconds.min(WAIT_SECONDS_MAX) as u16)
}

/// Splits at each `separator` outside quoted strings (RFC 9110 §5.6.4).
fn split(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    value.split(move |byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
        !is_quoted && *byte == separator
    })
}

/// Parses `token [ BWS "=" BWS word ]`. A word that is left out is the same as an empty one.
fn name_and_word(part: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let (name, word) = match part.iter().position(|byte| *byte == b'=') {
        Some(end) => (part[..end].trim_ascii_end(), unquoted(part[end + 1..].trim_ascii_start())?),
        None => (part, Vec::new()),
    };
    is_token(name).then_some((name, word))
}

/// The text of a token or of a quoted string; `None` if it is neither.
fn unquoted(word: &[u8]) -> Option<Vec<u8>> {
    let Some(quoted) = word.strip_prefix(b"\"") else {
        return is_token(word).then(|| word.to_vec());
    };
    let mut text = Vec::new();
    let mut bytes = quoted.iter();
    loop {
        match bytes.next()? {
            b'"' => return bytes.as_slice().is_empty().then_some(text),
            b'\\' => text.push(*bytes.next()?),
            byte => text.push(*byte),
        }
    }
}

fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(is_tchar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_well_formed_wait_counts() {
        for (value, expected) in [
            ("wait=60", Some(60)),
            ("Wait=060", Some(60)),
            ("wait = \t60", Some(60)),
            ("wait=\"60\"", Some(60)),
            ("wait=\"6\\0\"", Some(60)),
            ("wait=0", Some(0)),
            ("wait=1, wait=2", Some(1)),
            ("wait=x, wait=2", Some(2)),
            (",respond-async ,\twait=7;a, wait=8", Some(7)),
            ("wait=7;", Some(7)),
            ("wait=7 ; ;\ta=b; c = \"d\"", Some(7)),
            ("a=\"b, wait=1\", wait=2", Some(2)),
            ("a=\"\\\", wait=1\\\\\", wait=2", Some(2)),
            ("a;b=\";,\"; wait=1, wait=2", Some(2)),
            ("a b, @, =1, a=, \u{e9}, wait=2", Some(2)),
            ("a=\"b\"c, wait=2", Some(2)),
            ("wait=300", Some(300)),
            ("wait=301", Some(300)),
            ("wait=65537", Some(300)),
            ("wait=18446744073709551617", Some(300)),
            ("", None),
            ("wait", None),
            ("wait=", None),
            ("wait=\"\"", None),
            ("wait=+1", None),
            ("wait=-1", None),
            ("wait=1.5", None),
            ("wait=1s", None),
            ("wait=1 2", None),
            ("wait==1", None),
            ("wait=\"1", None),
            ("wait=\"1\\\"", None),
            ("wait=\"1\"2", None),
            ("wait=\"1\\", None),
            ("wait=1;@", None),
            ("wait=1;a=\"", None),
            ("wait=1;=a", None),
            ("await=1", None),
            ("wait 1", None),
            ("a;wait=1", None),
            ("a=\"b, wait=1", None),
            ("a=\"b\\\", wait=1", None),
        ] {
            assert_eq!(wait(value.as_bytes()), expected, "{value}");
        }
    }
}

//! Decodes chunked content (RFC 9112 §7.1) as it arrives, strictly: what one reader could take differently from another is an error.

use super::error::ProtocolError;

/// Bytes of one chunk-size line with its extensions, or of one trailer field; a size alone is at most 16 digits.
const LINE_BYTES_MAX: usize = 1024;

/// Bytes of chunk extensions and trailer fields in one content, all of which are read over and none kept.
const EXTRA_BYTES_MAX: usize = 16 * 1024;

/// How far a chunked content is decoded.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    /// What comes next.
    next: Next,
    /// Bytes of extensions and trailers so far.
    extra: usize,
}

/// What part of the coding comes next.
#[derive(Debug, Default)]
enum Next {
    /// A chunk-size line.
    #[default]
    Size,
    /// This many bytes of data.
    Data(usize),
    /// The line break that ends the data.
    DataEnd,
    /// A trailer field, or the empty line that ends it all.
    Trailer,
}

impl Chunks {
    /// Decodes `received` from `start` on into `content`, moving `start` past what is used up; says whether the end was reached.
    ///
    /// # Errors
    /// When the coding is malformed, or the content becomes longer than `content_max` bytes.
    pub(crate) fn take(
        &mut self,
        received: &[u8],
        start: &mut usize,
        content: &mut Vec<u8>,
        content_max: usize,
    ) -> Result<bool, ProtocolError> {
        loop {
            let rest = &received[*start..];
            match self.next {
                Next::Size => {
                    let Some(line) = whole_line(rest)? else { return Ok(false) };
                    let size = self.size(line)?;
                    *start += line.len() + 2;
                    self.next = match usize::try_from(size) {
                        Ok(0) => Next::Trailer,
                        Ok(size) if size <= content_max.saturating_sub(content.len()) => Next::Data(size),
                        _ => return Err(ProtocolError::ContentTooLarge(content_max)),
                    };
                }
                Next::Data(left) => {
                    let data = &rest[..left.min(rest.len())];
                    content.extend_from_slice(data);
                    *start += data.len();
                    self.next = if data.len() == left { Next::DataEnd } else { Next::Data(left - data.len()) };
                    if data.len() < left {
                        return Ok(false);
                    }
                }
                Next::DataEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        *start += 2;
                        self.next = Next::Size;
                    }
                    [] | [b'\r'] => return Ok(false),
                    _ => return Err(ProtocolError::Chunk),
                },
                Next::Trailer => {
                    let Some(line) = whole_line(rest)? else { return Ok(false) };
                    *start += line.len() + 2;
                    if line.is_empty() {
                        return Ok(true);
                    }
                    self.count_extra(line.len())?;
                    if !is_field_line(line) {
                        return Err(ProtocolError::Chunk);
                    }
                }
            }
        }
    }

    /// The size of a chunk, from its line without the line break: 1 to 16 hexadecimal digits, extensions after `;`.
    fn size(&mut self, line: &[u8]) -> Result<u64, ProtocolError> {
        let digits = match line.iter().position(|byte| *byte == b';') {
            Some(at) => {
                self.count_extra(line.len() - at)?;
                trim_end_of_blanks(&line[..at])
            }
            None => line,
        };
        if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(ProtocolError::Chunk);
        }
        let digits = str::from_utf8(digits).expect("hexadecimal digits are ASCII");
        u64::from_str_radix(digits, 16).map_err(|_| ProtocolError::Chunk)
    }

    /// Keeps what is read over bounded.
    fn count_extra(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        self.extra += bytes;
        if self.extra > EXTRA_BYTES_MAX { Err(ProtocolError::Chunk) } else { Ok(()) }
    }
}

/// A chunk size without the white space that may stand before its extensions (BWS, RFC 9110 §5.6.3).
fn trim_end_of_blanks(size: &[u8]) -> &[u8] {
    let end = size.iter().rposition(|byte| !b" \t".contains(byte)).map_or(0, |last| last + 1);
    &size[..end]
}

/// Whether a line of the trailer section begins with a field name and a colon (RFC 9112 §5).
fn is_field_line(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.len() < line.len() && name.iter().all(is_token)
}

/// The first line of `bytes` without its CR LF, once all of it is there.
fn whole_line(bytes: &[u8]) -> Result<Option<&[u8]>, ProtocolError> {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return if window.len() == LINE_BYTES_MAX { Err(ProtocolError::Chunk) } else { Ok(None) };
    };
    match window[..end].split_last() {
        Some((b'\r', line)) if !line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') => Ok(Some(line)),
        _ => Err(ProtocolError::Chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `coded`, fed whole and byte by byte; both must agree. Gives the content and how many bytes follow it.
    #[track_caller]
    fn check(coded: &[u8], content_max: usize, expected: Result<Option<(&[u8], usize)>, ProtocolError>) {
        let decode = |steps: &mut dyn Iterator<Item = usize>| {
            let (mut chunks, mut start, mut content) = (Chunks::default(), 0, Vec::new());
            for end in steps {
                if chunks.take(&coded[..end], &mut start, &mut content, content_max)? {
                    return Ok(Some((content, coded.len() - start)));
                }
            }
            Ok(None)
        };
        let expected = expected.map(|whole| whole.map(|(content, left)| (content.to_vec(), left)));
        let label = String::from_utf8_lossy(coded);
        assert_eq!(decode(&mut std::iter::once(coded.len())), expected, "whole: {label:?}");
        assert_eq!(decode(&mut (1..=coded.len())), expected, "byte by byte: {label:?}");
    }

    #[test]
    fn chunks_decode_to_their_data() {
        check(b"0\r\n\r\n", 9, Ok(Some((b"", 0))));
        check(b"3\r\nabc\r\n0\r\n\r\nGET", 9, Ok(Some((b"abc", 3))));
        check(b"3\r\nabc\r\n002\r\n\r\n\r\n000\r\n\r\n", 9, Ok(Some((b"abc\r\n", 0))));
        check(b"A\r\n0123456789\r\n0\r\n\r\n", 10, Ok(Some((b"0123456789", 0))));
        check(b"3;a=b;c=\"d\"\r\nabc\r\n0 ;x\r\n\r\n", 9, Ok(Some((b"abc", 0))));
        check(b"0\r\nA: b\r\nC: d\r\n\r\n", 9, Ok(Some((b"", 0))));
    }

    #[test]
    fn a_cut_is_never_an_end() {
        let coded = b"3;x\r\nabc\r\n0\r\nA: b\r\n\r\n";
        for end in 0..coded.len() {
            check(&coded[..end], 9, Ok(None));
        }
    }

    #[test]
    fn what_does_not_decode_is_refused() {
        for coded in [
            &b"\r\nabc\r\n0\r\n\r\n"[..],
            b"+3\r\nabc\r\n",
            b"-1\r\n",
            b"0x3\r\nabc\r\n",
            b"3 \r\nabc\r\n",
            b" 3\r\nabc\r\n",
            b"3\nabc\n0\n\n",
            b"3;a\nb\r\nabc\r\n",
            b"3;a\rb\r\nabc\r\n",
            b"3\r\nabcd\r\n",
            b"3\r\nabc\rx",
            b"3\r\nabc\n0\r\n\r\n",
            b"zz\r\n",
            b"00000000000000001\r\na\r\n",
            b"0\r\nno field\r\n\r\n",
            b"0\r\n a: folded\r\n\r\n",
            b"0\r\n: x\r\n\r\n",
            b"0\r\na b: x\r\n\r\n",
            b"3\x0c;x\r\nabc\r\n",
            b"3;\0\r\nabc\r\n",
            b"0\r\n\n",
        ] {
            check(coded, 9, Err(ProtocolError::Chunk));
        }
        check(&[b'1'; LINE_BYTES_MAX], 9, Err(ProtocolError::Chunk));
        check("0\r\n".bytes().chain("a: b\r\n".bytes().cycle().take(30_000)).collect::<Vec<_>>().as_slice(), 9, Err(ProtocolError::Chunk));
    }

    #[test]
    fn more_than_the_limit_is_refused_at_its_announcement() {
        check(b"A\r\n", 9, Err(ProtocolError::ContentTooLarge(9)));
        check(b"5\r\nabcde\r\n5\r\n", 9, Err(ProtocolError::ContentTooLarge(9)));
        check(b"ffffffffffffffff\r\n", 9, Err(ProtocolError::ContentTooLarge(9)));
    }
}

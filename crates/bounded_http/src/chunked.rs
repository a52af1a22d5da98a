//! Decodes chunked content (RFC 9112 §7.1) as it arrives. Strict: what a proxy might read
//! differently, such as a line that ends in LF alone, is an error.

use memchr::memchr;

use super::ProtocolError;
use super::syntax::{is_tchar, parse_digits};

/// Longest chunk-size line with its extensions, or trailer field, in bytes with CR LF.
const LINE_BYTES_MAX: usize = 1024;

/// Digits of a size of 64 bits. What a size has beyond these are leading zeros.
const SIZE_DIGITS_MAX: usize = 16;

/// Most bytes of chunk extensions, trailer fields and zeros before sizes in one content. They are
/// ignored, but must not keep the server busy forever.
const EXTRA_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct ChunkedDecoder {
    part: ChunkPart,
    /// Bytes of data so far, and in the chunk that has begun.
    announced: usize,
    /// Bytes of extensions, trailer fields and zeros before sizes so far.
    extra: usize,
}

#[derive(Debug, Default)]
enum ChunkPart {
    #[default]
    SizeLine,
    /// How many bytes of data are still to come, before the CR LF that ends the chunk.
    Data(usize),
    /// A trailer field, or the empty line that ends the content.
    Trailer,
}

impl ChunkedDecoder {
    /// Decodes `received` from `start` on, appends the data to `content`, and moves `start` to the
    /// first byte that it did not use. Returns whether the content has ended.
    pub(super) fn decode(
        &mut self,
        received: &[u8],
        start: &mut usize,
        content: &mut Vec<u8>,
        content_max: usize,
    ) -> Result<bool, ProtocolError> {
        loop {
            let rest = &received[*start..];
            match self.part {
                ChunkPart::SizeLine => {
                    let Some(line) = take_line(received, start)? else { return Ok(false) };
                    let extension = memchr(b';', line);
                    let size_end = extension.unwrap_or(line.len());
                    let zeros = size_end.saturating_sub(SIZE_DIGITS_MAX);
                    self.count_extra(zeros + line.len() - size_end)?;
                    // RFC 9112 §7.1.1: white space after the size may come only before a `;`.
                    let digits = extension.map_or(line, |begin| line[..begin].trim_ascii_end());
                    self.part = match parse_digits(digits, 16).ok_or(ProtocolError::CHUNK)? {
                        0 => ChunkPart::Trailer,
                        size if size <= content_max.saturating_sub(self.announced) as u64 => {
                            self.announced += size as usize;
                            ChunkPart::Data(size as usize)
                        }
                        _ => return Err(ProtocolError::ContentTooLarge(content_max)),
                    };
                }
                ChunkPart::Data(0) => match rest {
                    [b'\r', b'\n', ..] => {
                        *start += 2;
                        self.part = ChunkPart::SizeLine;
                    }
                    [] | [b'\r'] => return Ok(false),
                    _ => return Err(ProtocolError::CHUNK),
                },
                ChunkPart::Data(_) if rest.is_empty() => return Ok(false),
                ChunkPart::Data(left) => {
                    let data = &rest[..left.min(rest.len())];
                    content.extend_from_slice(data);
                    *start += data.len();
                    self.part = ChunkPart::Data(left - data.len());
                }
                ChunkPart::Trailer => {
                    let Some(line) = take_line(received, start)? else { return Ok(false) };
                    if line.is_empty() {
                        return Ok(true);
                    }
                    self.count_extra(line.len())?;
                    // RFC 9112 §5: a field line begins with its name and a colon.
                    let name = memchr(b':', line).map_or(b"".as_slice(), |end| &line[..end]);
                    if name.is_empty() || !name.iter().all(is_tchar) {
                        return Err(ProtocolError::CHUNK);
                    }
                }
            }
        }
    }

    fn count_extra(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        self.extra += bytes;
        if self.extra > EXTRA_BYTES_MAX { Err(ProtocolError::CHUNK) } else { Ok(()) }
    }
}

/// Takes the line at `start`: returns it without its CR LF, and moves `start` behind that. `None`
/// if the end of the line has not arrived. Fails if the line is too long or malformed.
fn take_line<'a>(received: &'a [u8], start: &mut usize) -> Result<Option<&'a [u8]>, ProtocolError> {
    let rest = &received[*start..];
    let window = &rest[..rest.len().min(LINE_BYTES_MAX)];
    let Some(end) = memchr(b'\n', window) else {
        return if window.len() == LINE_BYTES_MAX { Err(ProtocolError::CHUNK) } else { Ok(None) };
    };
    *start += end + 1;
    match window[..end].strip_suffix(b"\r") {
        Some(line) if !line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') => {
            Ok(Some(line))
        }
        _ => Err(ProtocolError::CHUNK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT_MAX: usize = 2000;

    /// Decodes `coded` at once and byte by byte, and checks the content and how many bytes follow
    /// it.
    #[track_caller]
    fn check(coded: &[u8], expected: Result<(&[u8], usize), ProtocolError>) {
        let label = String::from_utf8_lossy(coded);
        let decode = |size: usize| {
            let mut decoder = ChunkedDecoder::default();
            let (mut start, mut content) = (0, Vec::new());
            for end in (size..=coded.len()).step_by(size) {
                if decoder.decode(&coded[..end], &mut start, &mut content, CONTENT_MAX)? {
                    return Ok((content, coded.len() - start));
                }
            }
            panic!("no end in {label:?}");
        };
        let expected = expected.map(|(content, left)| (content.to_vec(), left));
        for size in [coded.len(), 1] {
            assert_eq!(decode(size), expected, "{label:?} in pieces of {size}");
        }
    }

    #[test]
    fn chunks_decode_to_their_data() {
        check(b"0\r\n\r\n", Ok((b"", 0)));
        check(b"3\r\nabc\r\n0\r\n\r\nGET", Ok((b"abc", 3)));
        check(b"3\r\nabc\r\n002\r\n\r\n\r\n000\r\n\r\n", Ok((b"abc\r\n", 0)));
        check(b"00000000000000000001\r\na\r\n00000000000000000000\r\n\r\n", Ok((b"a", 0)));
        check(b"A\r\n0123456789\r\n0\r\n\r\n", Ok((b"0123456789", 0)));
        let padded = "0000000000000001\r\na\r\n".repeat(CONTENT_MAX) + "0\r\n\r\n";
        check(padded.as_bytes(), Ok((&[b'a'; CONTENT_MAX], 0)));
        check(b"3;a=b;c=\"d\"\r\nabc\r\n0 ;x\r\n\r\n", Ok((b"abc", 0)));
        check(b"0\r\nA: b\r\nC: d\r\n\r\n", Ok((b"", 0)));
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
            b"10000000000000000\r\na\r\n",
            b"0\r\nno field\r\n\r\n",
            b"0\r\n a: folded\r\n\r\n",
            b"0\r\n: x\r\n\r\n",
            b"0\r\na b: x\r\n\r\n",
            b"3\x0c;x\r\nabc\r\n",
            b"3;\0\r\nabc\r\n",
            b"0\r\n\n",
        ] {
            check(coded, Err(ProtocolError::CHUNK));
        }
        check(&[b'1'; LINE_BYTES_MAX], Err(ProtocolError::CHUNK));
        let zeros = format!("{}1\r\na\r\n", "0".repeat(1000)).repeat(17);
        check(zeros.as_bytes(), Err(ProtocolError::CHUNK));
        let trailers = "0\r\n".to_owned() + &"a: b\r\n".repeat(5_000);
        check(trailers.as_bytes(), Err(ProtocolError::CHUNK));
    }
}

//! What several targets share.

pub mod parsed;
pub mod reference;

/// Most bytes of content; small, so that inputs reach it.
pub const CONTENT_MAX: usize = 100;

/// What stands for [`FILLING`], and how often one input may have that.
const FILLER: &[u8] = b"\xff\x01";
const FILLING: &[u8] = &[b'a'; 16_000];
const FILLINGS_MAX: usize = 6;

/// Puts 16,000 letters in the place of the bytes 255 and 1, so that short inputs reach the limits.
pub fn fill(mut data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..FILLINGS_MAX {
        let Some(end) = data.windows(FILLER.len()).position(|window| window == FILLER) else {
            break;
        };
        bytes.extend_from_slice(&data[..end]);
        bytes.extend_from_slice(FILLING);
        data = &data[end + FILLER.len()..];
    }
    bytes.extend_from_slice(data);
    bytes
}

/// Sizes of the pieces that bytes are split into; many bytes are not split into single ones, which
/// would take long.
pub fn sizes(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let is_long = bytes.len() > 4096;
    [1, 2, 3, 17, 61, 4096].into_iter().filter(move |size| !is_long || *size > 17)
}

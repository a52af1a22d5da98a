//! What two of the peers share to be measured with long lists: a number of threads; and a new list
//! in place of the old one, which the API does not ask for.

use std::{env, io, thread};

use serde::Deserialize;

use crate::api::Color;

/// Longest content, in bytes: as much as the product takes with its highest `--max-body`.
pub(crate) const BYTES_MAX: usize = 16 << 20;

/// As many threads as the variable THREADS says, or one for each processor.
pub(crate) fn threads() -> io::Result<usize> {
    match env::var("THREADS") {
        Ok(threads) => threads.parse().map_err(io::Error::other),
        Err(_) => Ok(thread::available_parallelism()?.get()),
    }
}

/// A new list that is not an array.
#[derive(Deserialize)]
struct List {
    data: Vec<Color>,
}

/// The array or the object of the content.
pub(crate) fn parse(content: &[u8]) -> serde_json::Result<Vec<Color>> {
    // Tried one after the other: an untagged enum would hold all of it in between.
    serde_json::from_slice(content)
        .or_else(|_| serde_json::from_slice(content).map(|List { data }| data))
}

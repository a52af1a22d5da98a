//! What the peers in Rust share: the command line and the JSON. Knows no framework.

use std::{env, fs, io};

use serde::{Deserialize, Serialize};

#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Color {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Serialize)]
pub(crate) struct Envelope<'a> {
    pub(crate) data: &'a [Color],
}

#[derive(Deserialize)]
pub(crate) struct Update {
    pub(crate) value: Option<String>,
}

/// The two arguments: the port to listen on, and the file of colors to start with.
pub(crate) fn arguments() -> io::Result<(u16, Vec<Color>)> {
    let [_, port, seed] = env::args()
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| io::Error::other("usage: PORT SEED"))?;
    Ok((port.parse().map_err(io::Error::other)?, serde_json::from_slice(&fs::read(seed)?)?))
}

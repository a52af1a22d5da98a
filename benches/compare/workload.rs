//! The requests of each workload, and the contents that every server has to answer with. Measures
//! nothing.

use std::sync::LazyLock;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{Client, Request, Response};
use crate::server::Server;

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Color {
    pub(crate) name: String,
    pub(crate) value: String,
}

pub(crate) fn colors(count: usize) -> Vec<Color> {
    (0..count).map(color).collect()
}

/// The color at this place of every list: the product's seed first, then generated ones. No name
/// needs an escape in a path.
pub(crate) fn color(place: usize) -> Color {
    static SEED: LazyLock<Vec<Color>> = LazyLock::new(|| {
        serde_json::from_str(include_str!("../../seed/colors.json"))
            .expect("the product's seed is a file of colors")
    });
    let generated = || Color {
        name: format!("color-{place:07}"),
        value: format!("#{:06x}", place % (1 << 24)),
    };
    SEED.get(place).cloned().unwrap_or_else(generated)
}

pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings always serialize")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    Read,
    List,
    Update,
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        ["read", "list", "update"][self as usize]
    }

    /// A request, which leaves the list as long as it was.
    pub(crate) fn request(self, colors: &[Color]) -> Request {
        // From the middle, so that a search from either end costs the average.
        let color = format!("/colors/{}", colors[colors.len() / 2].name);
        match self {
            Self::Read => Request::new("GET", color, ""),
            Self::List => Request::new("GET", "/colors", ""),
            Self::Update => Request::new("PUT", color, r##"{"value":"#112233"}"##),
        }
    }

    /// Requests to send in turn. Each update gives the color another value: nothing changes when it
    /// has the value already.
    pub(crate) fn requests(self, colors: &[Color]) -> Vec<Vec<u8>> {
        let request = self.request(colors);
        let values = 0..if self == Self::Update { 100 } else { 1 };
        let content = |value| request.content.replace("112233", &format!("{value:06x}"));
        values.map(|value| Request { content: content(value), ..request.clone() }.bytes()).collect()
    }

    /// Sends a request and returns the length of the response, in bytes. Fails if the content is
    /// not that of the API.
    pub(crate) fn check(self, server: &Server, colors: &[Color]) -> Result<usize> {
        let one = &colors[colors.len() / 2];
        let expected = match self {
            Self::Read => json!(one),
            Self::List => json!({ "data": colors }),
            Self::Update => json!({ "name": one.name, "value": "#112233" }),
        };
        let request = self.request(colors);
        let Response(head, content) = Client::connect(server.address)?.ask(&request)?;
        ensure!(
            serde_json::from_slice::<Value>(&content).is_ok_and(|content| content == expected),
            "{} {} is answered with the wrong content",
            request.method,
            request.target
        );
        Ok(head.len() + content.len())
    }
}

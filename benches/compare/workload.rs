//! The requests of each workload, and the contents that every server has to answer with. Measures
//! nothing.

use std::sync::LazyLock;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{Client, Request, Response};
use crate::server::{Kind, Server};

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
    CreateDelete,
    NewConnection,
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        ["read", "list", "update", "create+delete", "new connection"][self as usize]
    }

    /// Requests that leave the list as long as it was, and the content of the response to each.
    pub(crate) fn requests(self, colors: &[Color]) -> Vec<(Request, Value)> {
        // From the middle, so that a search from either end costs the average.
        let one = &colors[colors.len() / 2];
        let read_one = Request::new("GET", format!("/colors/{}", one.name), "");
        let changed = |name: &str| json!({ "name": name, "value": "#112233" });
        match self {
            Self::Read => vec![(read_one, json!(one))],
            Self::List => vec![(Request::new("GET", "/colors", ""), json!({ "data": colors }))],
            Self::Update => vec![(
                Request::new("PUT", read_one.target, r##"{"value":"#112233"}"##),
                changed(&one.name),
            )],
            Self::CreateDelete => {
                let new = changed("bench-0");
                let create = Request::new("POST", "/colors", new.to_string());
                vec![(create, new.clone()), (Request::new("DELETE", "/colors/bench-0", ""), new)]
            }
            Self::NewConnection => vec![(Request { close: true, ..read_one }, json!(one))],
        }
    }

    /// The script that makes wrk send the requests. Target and fields of the first one are among
    /// wrk's arguments.
    pub(crate) fn script(self) -> String {
        let requests = match self {
            Self::Read | Self::List | Self::NewConnection => "",
            Self::Update => include_str!("update.lua"),
            Self::CreateDelete => include_str!("create_delete.lua"),
        };
        [requests, include_str!("done.lua")].concat()
    }

    /// Sends the requests once and returns the length of the last response, in bytes. Fails if the
    /// contents are not those of the API; json-server's list has no envelope.
    pub(crate) fn check(self, kind: Kind, server: &Server, colors: &[Color]) -> Result<usize> {
        let mut bytes = 0;
        for (request, mut expected) in self.requests(colors) {
            if kind == Kind::JsonServer && self == Self::List {
                expected = json!(colors);
            }
            let Response(head, content) = Client::connect(server.address)?.ask(&request)?;
            let right =
                serde_json::from_slice::<Value>(&content).is_ok_and(|content| content == expected);
            ensure!(
                right,
                "{} {} is answered with the wrong content",
                request.method,
                request.target
            );
            bytes = head.len() + content.len();
        }
        Ok(bytes)
    }

    /// Deletes what wrk created but, at the end of its time, had not deleted.
    pub(crate) fn tidy(self, server: &Server) -> Result<()> {
        if self == Self::CreateDelete {
            let mut client = Client::connect(server.address)?;
            let list: Value =
                serde_json::from_slice(&client.ask(&Request::new("GET", "/colors", ""))?.1)?;
            let names = list["data"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|color| color["name"].as_str());
            for name in names.filter(|name| name.starts_with("bench-")) {
                client.ask(&Request::new("DELETE", format!("/colors/{name}"), ""))?;
            }
        }
        Ok(())
    }
}

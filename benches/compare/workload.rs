//! The requests of each workload, and the contents that every server has to answer with. Measures
//! nothing.

use std::sync::LazyLock;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{Client, Request, Response, redis_command};
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
    pub(crate) fn requests(self, kind: Kind, colors: &[Color]) -> Vec<Vec<u8>> {
        let request = self.request(colors);
        let values = 0..if self == Self::Update { 100 } else { 1 };
        let bytes = |value: u32| match kind {
            Kind::Redis => self.redis_command(colors, &format!("#{value:06x}")),
            _ => {
                let content = request.content.replace("112233", &format!("{value:06x}"));
                Request { content, ..request.clone() }.bytes()
            }
        };
        values.map(bytes).collect()
    }

    fn redis_command(self, colors: &[Color], value: &str) -> Vec<u8> {
        let name = &colors[colors.len() / 2].name;
        match self {
            Self::Update => redis_command(&["SET", name, value]),
            _ => redis_command(&["GET", name]),
        }
    }

    /// Sends a request and returns the length of the response, in bytes. Fails if the content is
    /// not that of the API. Redis gets the colors first.
    pub(crate) fn check(self, kind: Kind, server: &Server, colors: &[Color]) -> Result<usize> {
        if kind == Kind::Redis {
            return self.check_redis(server, colors);
        }
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

    /// Has a server create, update, read and delete a color, which leaves the list as it was. Fails
    /// if a content is not that of the API.
    pub(crate) fn check_operations(server: &Server) -> Result<()> {
        let mut client = Client::connect(server.address)?;
        let with = |value| to_json(&json!({ "name": "new", "value": value }));
        let steps = [
            ("POST", "/colors", with("#111111"), "#111111"),
            ("PUT", "/colors/new", r##"{"value":"#222222"}"##.to_owned(), "#222222"),
            ("GET", "/colors/new", String::new(), "#222222"),
            ("DELETE", "/colors/new", String::new(), "#222222"),
        ];
        for (method, target, content, value) in steps {
            let Response(_, content) = client.ask(&Request::new(method, target, content))?;
            ensure!(content.trim_ascii_end() == with(value).as_bytes(), "{method}: wrong content");
        }
        client.send(&Request::new("GET", "/colors/new", ""))?;
        let status = client.receive_line()?;
        ensure!(status.starts_with("HTTP/1.1 404 "), "a deleted color is answered with {status}");
        Ok(())
    }

    fn check_redis(self, server: &Server, colors: &[Color]) -> Result<usize> {
        let mut client = Client::connect(server.address)?;
        for color in colors {
            client.send_bytes(&redis_command(&["SET", &color.name, &color.value]))?;
            ensure!(client.receive_line()? == "+OK\r\n", "Redis takes no color");
        }
        let one = &colors[colors.len() / 2];
        client.send_bytes(&self.redis_command(colors, &one.value))?;
        let answer = match self {
            Self::Update => client.receive_line()?,
            _ => client.receive_line()? + &client.receive_line()?,
        };
        let expected = match self {
            Self::Update => "+OK\r\n".to_owned(),
            _ => format!("${}\r\n{}\r\n", one.value.len(), one.value),
        };
        ensure!(answer == expected, "Redis answered with {answer:?}");
        Ok(answer.len())
    }
}

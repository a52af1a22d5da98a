//! Which requests are sent, as scripts for wrk, and whether a server answers them as it should. Measures nothing.

use std::fmt;

use clap::ValueEnum;
use serde_json::Value;

use crate::client::{Client, request};
use crate::colors::{self, Color};
use crate::failure::Failure;
use crate::servers::Server;

/// What every update sends.
pub(crate) const UPDATE: &str = r##"{"value":"#112233"}"##;

/// Begins the name of every color that a comparison creates.
const CREATED: &str = "bench-";

/// Ends every script: wrk's results in a line of numbers, times in microseconds.
const DONE: &str = r#"
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format("measured %d %d %d %d %d %d\n", summary.requests, summary.duration, latency:percentile(99),
    errors.connect + errors.read + errors.write, errors.status, errors.timeout))
end
"#;

/// Creates a color, and deletes it once it is known to exist, so that the list does not grow.
///
/// json-server names a new color itself, by an `id`.
const CREATE_DELETE: &str = r##"
local threads = 0
function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

local created, count, prefix, before, after = {}, 0
function init()
  prefix = string.format("bench-%03d-", number)
  wrk.headers["Content-Type"] = "application/json"
  local create = wrk.format("POST", "/colors", nil, '{"name":"' .. prefix .. '12345678","value":"#112233"}')
  before, after = create:match("^(.*" .. prefix:gsub("%-", "%%-") .. ")12345678(.*)$")
end

function request()
  local name = table.remove(created)
  if name then
    return wrk.format("DELETE", "/colors/" .. name)
  end
  count = count + 1
  return before .. string.format("%08d", count) .. after
end

function response(status, headers, content)
  if status == 201 then
    created[#created + 1] = content:match('"id"%s*:%s*"([^"]*)"') or content:match('"name"%s*:%s*"([^"]*)"')
  end
end
"##;

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// GET of one color, from the middle of the list.
    ReadOne,
    /// GET of the list.
    ReadAll,
    /// PUT of one color, from the middle of the list.
    Update,
    /// POST of a new color and DELETE of it, by turns; each is a request.
    CreateDelete,
}

impl Workload {
    /// All of them, in the order of the table.
    pub(crate) const ALL: [Self; 4] = [Self::ReadOne, Self::ReadAll, Self::Update, Self::CreateDelete];

    /// The script that has wrk send it.
    pub(crate) fn script(self, colors: &[Color]) -> String {
        let name = &target_color(colors).name;
        let requests = match self {
            Self::ReadOne => format!("wrk.path = '/colors/{name}'\n"),
            Self::ReadAll => "wrk.path = '/colors'\n".to_owned(),
            Self::Update => {
                let method = "wrk.method = 'PUT'\nwrk.headers['Content-Type'] = 'application/json'\n";
                format!("{method}wrk.path = '/colors/{name}'\nwrk.body = '{UPDATE}'\n")
            }
            Self::CreateDelete => CREATE_DELETE.to_owned(),
        };
        format!("wrk.headers['Accept'] = 'application/json'\n{requests}{DONE}")
    }

    /// Sends it once and looks at the answers.
    ///
    /// # Errors
    /// When they are not those of the API; of json-server, the status is asked for only.
    pub(crate) fn check(self, server: &Server, colors: &[Color]) -> Result<(), Failure> {
        let one = target_color(colors);
        let target = format!("/colors/{}", one.name);
        match self {
            Self::ReadOne => expect(server, "GET", &target, None, 200, &color_json(one)).map(drop),
            Self::ReadAll => expect(server, "GET", "/colors", None, 200, &colors::envelope(colors)).map(drop),
            Self::Update => {
                let updated = Color { name: one.name.clone(), value: "#112233".to_owned() };
                expect(server, "PUT", &target, Some(UPDATE), 200, &color_json(&updated)).map(drop)
            }
            Self::CreateDelete => {
                let new = color_json(&Color { name: format!("{CREATED}check"), value: "#112233".to_owned() });
                let created = expect(server, "POST", "/colors", Some(&new), 201, &new)?;
                let target = format!("/colors/{}", id(&created).unwrap_or_default());
                expect(server, "DELETE", &target, None, 200, &new).map(drop)
            }
        }
    }

    /// Deletes what wrk has created and, cut off by the end of its time, not deleted.
    pub(crate) fn tidy(self, server: &Server) -> Result<(), Failure> {
        if self != Self::CreateDelete {
            return Ok(());
        }
        let mut client = Client::connect(server.address)?;
        let list = client.ask(&request("GET", "/colors", None))?.json();
        // json-server has no envelope.
        let items = list["data"].as_array().or(list.as_array()).into_iter().flatten();
        let left = items.filter(|item| item["name"].as_str().is_some_and(|name| name.starts_with(CREATED)));
        for id in left.filter_map(id) {
            client.ask(&request("DELETE", &format!("/colors/{id}"), None))?;
        }
        Ok(())
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ReadOne => "read one",
            Self::ReadAll => "read all",
            Self::Update => "update",
            Self::CreateDelete => "create+delete",
        })
    }
}

/// The color that is read and updated: from the middle, so that a search from either end costs the average.
pub(crate) fn target_color(colors: &[Color]) -> &Color {
    &colors[colors.len() / 2]
}

/// What a color is found by: json-server's `id`, or its name.
fn id(color: &Value) -> Option<&str> {
    color["id"].as_str().or(color["name"].as_str())
}

/// A color as JSON.
fn color_json(color: &Color) -> String {
    serde_json::to_string(color).expect("strings always serialize")
}

/// Sends a request and compares the answer.
fn expect(server: &Server, method: &str, target: &str, content: Option<&str>, status: u16, json: &str) -> Result<Value, Failure> {
    let answer = Client::connect(server.address)?.ask(&request(method, target, content))?;
    let got = answer.json();
    let expected: Value = serde_json::from_str(json).expect("what was written as JSON can be read");
    if answer.status != status || (server.kind.speaks_the_api() && got != expected) {
        return Err(Failure::Wrong(server.kind, format!("{method} {target}"), answer.status));
    }
    Ok(got)
}

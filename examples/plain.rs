//! The plain design of the service, to be read first: a loop takes requests from a server in the
//! shape of tiny_http's, which has limits, and hands each to a thread of a pool; a matcher written
//! by hand takes the method and the segments of the path; all threads share one mutex around a
//! vector of colors. Requests without conditions get the statuses and contents that docs/http.md
//! tells of the five operations, but for long names and content codings. Nothing is kept on disk.
//! docs/design.md says what became of each part. With `use tiny_http::` in place of
//! `use bounded_http::`, it runs on tiny_http.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::{env, fs, io};

use bounded_http::{Header, Method, Request, Response, ResponseBox, Server};
use log::LevelFilter;
use percent_encoding::percent_decode_str;
use rustix::net::sockopt::set_tcp_nodelay;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use simplelog::{Config, WriteLogger};
use threadpool::ThreadPool;

#[derive(Deserialize, Serialize)]
struct Color {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct Update {
    #[serde(default, deserialize_with = "not_null")]
    value: Option<String>,
}

/// Refuses null, which serde would read as a missing value.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

type Error = Box<dyn std::error::Error + Send + Sync>;

fn answer(status: u16, content: &impl Serialize) -> ResponseBox {
    let content = serde_json::to_string(content).expect("strings always serialize") + "\n";
    let json = Header::from_bytes("Content-Type", "application/json").expect("it is a field");
    Response::from_data(content).with_status_code(status).with_header(json).boxed()
}

fn answer_one(color: Option<&Color>) -> ResponseBox {
    color.map_or_else(|| answer(404, &json!({ "error": true })), |color| answer(200, color))
}

fn refuse(status: u16, message: impl ToString) -> ResponseBox {
    answer(status, &json!({ "error": true, "message": message.to_string() }))
}

fn refuse_method(allow: &str) -> ResponseBox {
    let field = Header::from_bytes("Allow", allow).expect("it is a field");
    refuse(405, format!("the method is not allowed here, only {allow}")).with_header(field)
}

fn parse<T: for<'de> Deserialize<'de>>(content: &[u8]) -> Result<T, Error> {
    match content.trim_ascii_start().first() {
        Some(b'{') => Ok(serde_json::from_slice(content)?),
        // serde would take an array of the fields as well.
        _ => Err(r##"send an object, as in {"name":"red","value":"#f00"}"##.into()),
    }
}

/// Answers a request, or fails with what is wrong with it: 400.
fn respond(colors: &Mutex<Vec<Color>>, request: &mut Request) -> Result<ResponseBox, Error> {
    use Method::{Delete, Get, Head, Post, Put};
    let mut content = Vec::new();
    request.as_reader().read_to_end(&mut content)?;
    let path = request.url().split('?').next().unwrap_or_default();
    let digits = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count();
    if path.split('%').skip(1).any(|rest| digits(rest) < 2) {
        return Err("the path has a bad percent escape".into());
    }
    // After the split: `a%2Fb` is one segment.
    let decode = |segment| percent_decode_str(segment).decode_utf8();
    let segments = path.split('/').skip(1).map(decode).collect::<Result<Vec<_>, _>>()?;
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    let mut colors = colors.lock().expect("nothing panics while it has the lock");
    let find = |name: &str| colors.iter().position(|color| color.name == name);
    Ok(match (request.method(), &segments[..]) {
        (Get | Head, ["colors"]) => answer(200, &BTreeMap::from([("data", &*colors)])),
        (Post, ["colors"]) => {
            colors.push(parse(&content)?);
            answer(201, &colors.last())
        }
        (Get | Head, ["colors", name]) => answer_one(find(name).map(|at| &colors[at])),
        (Put, ["colors", name]) => {
            let mut color = find(name).map(|at| &mut colors[at]);
            if let Some(color) = &mut color
                && !content.is_empty()
                && let Update { value: Some(value) } = parse(&content)?
            {
                color.value = value;
            }
            answer_one(color.as_deref())
        }
        (Delete, ["colors", name]) => answer_one(find(name).map(|at| colors.remove(at)).as_ref()),
        (_, ["colors"]) => refuse_method("GET, HEAD, POST"),
        (_, ["colors", _]) => refuse_method("GET, HEAD, PUT, DELETE"),
        _ => refuse(404, "no such resource, the list is at /colors"),
    })
}

fn main() -> Result<(), Error> {
    WriteLogger::init(LevelFilter::Info, Config::default(), io::stderr())?;
    let mut arguments = env::args().skip(1);
    let seed = arguments.next().ok_or("usage: plain SEED [PORT [THREADS]]")?;
    let port = arguments.next().map_or(Ok(8080), |port| port.parse())?;
    let threads = arguments.next().map_or(Ok(2), |threads| threads.parse())?;
    let colors = Arc::new(Mutex::<Vec<Color>>::new(serde_json::from_slice(&fs::read(seed)?)?));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    // Connections inherit it. Without it, Nagle's algorithm makes each list take 40 ms.
    set_tcp_nodelay(&listener, true)?;
    log::info!("listening on http://{} with {threads} threads", listener.local_addr()?);
    let server = Server::from_listener(listener, None)?;
    let pool = ThreadPool::new(threads);
    loop {
        let mut request = server.recv()?;
        let colors = Arc::clone(&colors);
        pool.execute(move || {
            let answer = respond(&colors, &mut request).unwrap_or_else(|error| refuse(400, error));
            let _ = request.respond(answer); // The client may have gone.
        });
    }
}

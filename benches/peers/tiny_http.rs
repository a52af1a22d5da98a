//! The colors API in the shape that a program on tiny_http has first: a loop takes requests from
//! `Server::recv` and hands each to a thread of a pool; a matcher written by hand parses method and
//! path; all threads share one list behind one mutex. The pool has a thread for each processor, or
//! as many as the variable THREADS says. Does nothing that the API does not ask for.

#![expect(clippy::disallowed_types, reason = "this is the program that colors is compared with")]

mod api;

use std::error::Error;
use std::io::{self, Cursor};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};

use percent_encoding::percent_decode_str;
use rustix::net::sockopt::set_tcp_nodelay;
use serde::Serialize;
use serde_json::json;
use threadpool::ThreadPool;
use tiny_http::{Header, Method, Request, Response, Server};

use crate::api::{Color, Envelope, Update};

type Answer = Response<Cursor<Vec<u8>>>;

fn answer(status: u16, content: &impl Serialize) -> Answer {
    let content = serde_json::to_vec(content).expect("strings always serialize");
    let json = Header::from_bytes("Content-Type", "application/json").expect("it is a field");
    Response::from_data(content).with_status_code(status).with_header(json)
}

fn error(status: u16) -> Answer {
    answer(status, &json!({ "error": true }))
}

fn found(color: Option<&Color>) -> Answer {
    color.map_or_else(|| error(404), |color| answer(200, color))
}

fn respond(colors: &Mutex<Vec<Color>>, request: &mut Request) -> Result<Answer, Box<dyn Error>> {
    let mut content = Vec::new();
    request.as_reader().read_to_end(&mut content)?;
    let path = request.url().split('?').next().unwrap_or_default();
    let segments = path.split('/').skip(1).map(|part| percent_decode_str(part).decode_utf8());
    let segments = segments.collect::<Result<Vec<_>, _>>()?;
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    let mut colors = colors.lock().expect("unpoisoned");
    Ok(match (request.method(), &segments[..]) {
        (Method::Get, ["colors"]) => answer(200, &Envelope { data: &colors }),
        (Method::Get, ["colors", name]) => found(colors.iter().find(|color| color.name == *name)),
        (Method::Post, ["colors"]) => {
            colors.push(serde_json::from_slice(&content)?);
            answer(201, &colors.last())
        }
        (Method::Put, ["colors", name]) => {
            let update: Update = serde_json::from_slice(&content)?;
            let mut color = colors.iter_mut().find(|color| color.name == *name);
            if let (Some(color), Some(value)) = (&mut color, update.value) {
                color.value = value;
            }
            found(color.as_deref())
        }
        (Method::Delete, ["colors", name]) => {
            let position = colors.iter().position(|color| color.name == *name);
            found(position.map(|position| colors.remove(position)).as_ref())
        }
        _ => error(404),
    })
}

fn main() -> io::Result<()> {
    let (port, colors) = api::arguments()?;
    let colors = Arc::new(Mutex::new(colors));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    // Its connections have what the listener has. Without it, each list takes 40 ms.
    set_tcp_nodelay(&listener, true)?;
    let server = Server::from_listener(listener, None).map_err(io::Error::other)?;
    let pool = ThreadPool::new(api::threads()?);
    loop {
        let (mut request, colors) = (server.recv()?, Arc::clone(&colors));
        pool.execute(move || {
            let answer = respond(&colors, &mut request).unwrap_or_else(|_| error(400));
            // The client may have gone.
            let _ = request.respond(answer);
        });
    }
}

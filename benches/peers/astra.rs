//! The colors API on astra, a synchronous server on hyper, written the usual way. astra has a
//! thread for each connection: up to 15 for each processor by default, or as many as the variable
//! THREADS says. Does nothing that the API does not ask for.

mod api;

use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::{env, io};

use astra::{Body, ConnectionInfo, Request, Response, ResponseBuilder, Server};
use serde::Serialize;
use serde_json::json;

use crate::api::{Color, Envelope, Update};

fn answer(status: u16, content: &impl Serialize) -> Response {
    let content = serde_json::to_vec(content).expect("strings always serialize");
    let response = ResponseBuilder::new().status(status).header("Content-Type", "application/json");
    response.body(Body::new(content)).expect("status and field are valid")
}

fn found(color: Option<&Color>) -> Response {
    color.map_or_else(|| answer(404, &json!({ "error": true })), |color| answer(200, color))
}

fn respond(colors: &Mutex<Vec<Color>>, request: &mut Request) -> serde_json::Result<Response> {
    let colors = || colors.lock().expect("unpoisoned");
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    Ok(match (method.as_str(), &segments[..]) {
        ("GET", ["colors"]) => answer(200, &Envelope { data: &colors() }),
        ("POST", ["colors"]) => {
            let color: Color = serde_json::from_reader(request.body_mut().reader())?;
            colors().push(color.clone());
            answer(201, &color)
        }
        ("GET", ["colors", name]) => found(colors().iter().find(|color| color.name == *name)),
        ("PUT", ["colors", name]) => {
            let update: Update = serde_json::from_reader(request.body_mut().reader())?;
            let mut colors = colors();
            let mut color = colors.iter_mut().find(|color| color.name == *name);
            if let (Some(color), Some(value)) = (&mut color, update.value) {
                color.value = value;
            }
            found(color.as_deref())
        }
        ("DELETE", ["colors", name]) => {
            let mut colors = colors();
            let position = colors.iter().position(|color| color.name == *name);
            found(position.map(|position| colors.remove(position)).as_ref())
        }
        _ => answer(404, &json!({ "error": true })),
    })
}

fn main() -> io::Result<()> {
    let (port, colors) = api::arguments()?;
    let colors = Mutex::new(colors);
    let mut server = Server::bind((Ipv4Addr::LOCALHOST, port));
    if env::var_os("THREADS").is_some() {
        server = server.max_workers(api::threads()?);
    }
    server.serve(move |mut request: Request, _: ConnectionInfo| {
        respond(&colors, &mut request).unwrap_or_else(|_| answer(400, &json!({ "error": true })))
    })
}

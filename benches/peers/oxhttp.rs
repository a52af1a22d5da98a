//! The colors API on oxhttp, a synchronous server that starts a thread for each connection, written
//! the usual way, with the defaults of oxhttp. Does nothing that the API does not ask for.

mod api;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Mutex;

use oxhttp::Server;
use oxhttp::model::{Body, Request, Response};
use serde::Serialize;
use serde_json::json;

use crate::api::{Color, Envelope, Update};

fn answer(status: u16, content: &impl Serialize) -> Response<Body> {
    let content = serde_json::to_vec(content).expect("strings always serialize");
    let response = Response::builder().status(status).header("Content-Type", "application/json");
    response.body(Body::from(content)).expect("status and field are valid")
}

fn found(color: Option<&Color>) -> Response<Body> {
    color.map_or_else(|| answer(404, &json!({ "error": true })), |color| answer(200, color))
}

fn respond(
    colors: &Mutex<Vec<Color>>,
    request: &mut Request<Body>,
) -> serde_json::Result<Response<Body>> {
    let colors = || colors.lock().expect("unpoisoned");
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    Ok(match (method.as_str(), &segments[..]) {
        ("GET", ["colors"]) => answer(200, &Envelope { data: &colors() }),
        ("POST", ["colors"]) => {
            let color: Color = serde_json::from_reader(request.body_mut())?;
            colors().push(color.clone());
            answer(201, &color)
        }
        ("GET", ["colors", name]) => found(colors().iter().find(|color| color.name == *name)),
        ("PUT", ["colors", name]) => {
            let update: Update = serde_json::from_reader(request.body_mut())?;
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
    let server = Server::new(move |request| {
        respond(&colors, request).unwrap_or_else(|_| answer(400, &json!({ "error": true })))
    });
    server.bind((Ipv4Addr::LOCALHOST, port)).spawn()?.join()
}

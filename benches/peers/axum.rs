//! The colors API on axum, written the usual way, with the defaults of axum. It has a thread for
//! each processor, or as many as the variable THREADS says. With the variable KEEP_BYTES, it keeps
//! the list as it is sent until the next change, as colors does. Does nothing that the API does not
//! ask for.

mod api;
mod lists;

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::{env, io};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;

use crate::api::{Color, Envelope, Update};

struct List {
    colors: Vec<Color>,
    keeps_bytes: bool,
    bytes: Option<Bytes>,
}

impl List {
    fn change(&mut self) -> &mut Vec<Color> {
        self.bytes = None;
        &mut self.colors
    }
}

type Colors = State<Arc<Mutex<List>>>;

fn found(color: Option<Color>) -> Response {
    match color {
        Some(color) => Json(color).into_response(),
        None => (StatusCode::NOT_FOUND, Json(json!({ "error": true }))).into_response(),
    }
}

async fn read_all(State(colors): Colors) -> Response {
    let List { colors, keeps_bytes, bytes } = &mut *colors.lock().expect("unpoisoned");
    // Serializing under the lock is cheaper than cloning the list first.
    let list = Envelope { data: colors };
    if !*keeps_bytes {
        return Json(list).into_response();
    }
    let to_bytes = || serde_json::to_vec(&list).expect("strings always serialize").into();
    let bytes = bytes.get_or_insert_with(to_bytes).clone();
    ([(CONTENT_TYPE, "application/json")], bytes).into_response()
}

async fn replace(State(colors): Colors, content: Bytes) -> Response {
    let Ok(list) = lists::parse(&content) else { return StatusCode::BAD_REQUEST.into_response() };
    let mut colors = colors.lock().expect("unpoisoned");
    *colors.change() = list;
    Json(Envelope { data: &colors.colors }).into_response()
}

async fn read_one(State(colors): Colors, Path(name): Path<String>) -> Response {
    let colors = &colors.lock().expect("unpoisoned").colors;
    found(colors.iter().find(|color| color.name == name).cloned())
}

async fn create(State(colors): Colors, Json(color): Json<Color>) -> (StatusCode, Json<Color>) {
    colors.lock().expect("unpoisoned").change().push(color.clone());
    (StatusCode::CREATED, Json(color))
}

async fn update(
    State(colors): Colors,
    Path(name): Path<String>,
    Json(update): Json<Update>,
) -> Response {
    let mut colors = colors.lock().expect("unpoisoned");
    let mut color = colors.change().iter_mut().find(|color| color.name == name);
    if let (Some(color), Some(value)) = (&mut color, update.value) {
        color.value = value;
    }
    found(color.cloned())
}

async fn delete(State(colors): Colors, Path(name): Path<String>) -> Response {
    let mut colors = colors.lock().expect("unpoisoned");
    let colors = colors.change();
    let position = colors.iter().position(|color| color.name == name);
    found(position.map(|position| colors.remove(position)))
}

fn main() -> io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(lists::threads()?).enable_all().build()?.block_on(serve())
}

async fn serve() -> io::Result<()> {
    let (port, colors) = api::arguments()?;
    let keeps_bytes = env::var_os("KEEP_BYTES").is_some();
    let app = Router::new()
        .route("/colors", get(read_all).post(create).put(replace))
        .route("/colors/{name}", get(read_one).put(update).delete(delete))
        .layer(DefaultBodyLimit::max(lists::BYTES_MAX))
        .with_state(Arc::new(Mutex::new(List { colors, keeps_bytes, bytes: None })));
    axum::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?, app).await
}

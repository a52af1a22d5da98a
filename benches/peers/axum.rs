//! The colors API on axum, written the usual way, to be measured beside the product. Does nothing that the API does not ask for.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use clap::Parser;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// Serves the colors API with axum, on loopback.
#[derive(Parser)]
struct Args {
    /// Port to listen on
    #[arg(long)]
    port: u16,

    /// File of colors to start with
    #[arg(long, value_name = "FILE")]
    seed: PathBuf,
}

/// One color.
#[derive(Clone, Deserialize, Serialize)]
struct Color {
    /// Identifies it in paths.
    name: String,
    /// For example `#112233`.
    value: String,
}

/// The answer to a read of the whole list.
#[derive(Serialize)]
struct Envelope<'a> {
    /// All colors in stored order.
    data: &'a [Color],
}

/// What an update may change.
#[derive(Deserialize)]
struct Update {
    /// The new value, if any.
    value: Option<String>,
}

/// The content of every error.
#[derive(Serialize)]
struct Error {
    /// Always true.
    error: bool,
}

/// There is no color of that name.
struct NotFound;

impl IntoResponse for NotFound {
    fn into_response(self) -> Response {
        (StatusCode::NOT_FOUND, Json(Error { error: true })).into_response()
    }
}

/// The list that all handlers share.
#[derive(Clone)]
struct Palette(Arc<Mutex<Vec<Color>>>);

impl Palette {
    /// The list, for this handler alone.
    fn lock(&self) -> MutexGuard<'_, Vec<Color>> {
        self.0.lock().expect("no handler panics while it holds the lock")
    }
}

/// GET /colors
async fn read_all(State(palette): State<Palette>) -> Response {
    Json(Envelope { data: &palette.lock() }).into_response()
}

/// GET /colors/{name}
async fn read_one(State(palette): State<Palette>, Path(name): Path<String>) -> Result<Json<Color>, NotFound> {
    palette.lock().iter().find(|color| color.name == name).cloned().map(Json).ok_or(NotFound)
}

/// POST /colors
async fn create(State(palette): State<Palette>, Json(color): Json<Color>) -> (StatusCode, Json<Color>) {
    palette.lock().push(color.clone());
    (StatusCode::CREATED, Json(color))
}

/// PUT /colors/{name}
async fn update(State(palette): State<Palette>, Path(name): Path<String>, Json(update): Json<Update>) -> Result<Json<Color>, NotFound> {
    let mut colors = palette.lock();
    let color = colors.iter_mut().find(|color| color.name == name).ok_or(NotFound)?;
    if let Some(value) = update.value {
        color.value = value;
    }
    Ok(Json(color.clone()))
}

/// DELETE /colors/{name}
async fn delete(State(palette): State<Palette>, Path(name): Path<String>) -> Result<Json<Color>, NotFound> {
    let mut colors = palette.lock();
    let position = colors.iter().position(|color| color.name == name).ok_or(NotFound)?;
    Ok(Json(colors.remove(position)))
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let args = Args::parse();
    let colors: Vec<Color> = serde_json::from_slice(&std::fs::read(args.seed)?)?;
    let app = Router::new()
        .route("/colors", get(read_all).post(create))
        .route("/colors/{name}", get(read_one).put(update).delete(delete))
        .with_state(Palette(Arc::new(Mutex::new(colors))));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await?.tap_io(|connection| {
        // A connection that cannot be told not to wait is served all the same.
        let _ = connection.set_nodelay(true);
    });
    axum::serve(listener, app).await
}

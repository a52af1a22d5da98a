//! The colors API on actix-web, written the usual way, to be measured beside the product. Does nothing that the API does not ask for.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use actix_web::{App, HttpResponse, HttpServer, delete, get, post, put, web};
use clap::Parser;
use serde::{Deserialize, Serialize};

/// Serves the colors API with actix-web, on loopback.
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

/// The list that all workers share.
struct Palette(Mutex<Vec<Color>>);

impl Palette {
    /// The list, for this handler alone.
    fn lock(&self) -> MutexGuard<'_, Vec<Color>> {
        self.0.lock().expect("no handler panics while it holds the lock")
    }
}

/// Answers with this color, or that there is none of that name.
fn found(color: Option<&Color>) -> HttpResponse {
    match color {
        Some(color) => HttpResponse::Ok().json(color),
        None => HttpResponse::NotFound().json(Error { error: true }),
    }
}

/// Lists all colors.
#[get("/colors")]
async fn read_all(palette: web::Data<Palette>) -> HttpResponse {
    HttpResponse::Ok().json(Envelope { data: &palette.lock() })
}

/// Finds one color.
#[get("/colors/{name}")]
async fn read_one(palette: web::Data<Palette>, name: web::Path<String>) -> HttpResponse {
    found(palette.lock().iter().find(|color| color.name == *name))
}

/// Appends a color.
#[post("/colors")]
async fn create(palette: web::Data<Palette>, color: web::Json<Color>) -> HttpResponse {
    let color = color.into_inner();
    palette.lock().push(color.clone());
    HttpResponse::Created().json(color)
}

/// Gives a color another value.
#[put("/colors/{name}")]
async fn update(palette: web::Data<Palette>, name: web::Path<String>, update: web::Json<Update>) -> HttpResponse {
    let mut colors = palette.lock();
    let mut color = colors.iter_mut().find(|color| color.name == *name);
    if let (Some(color), Some(value)) = (&mut color, update.into_inner().value) {
        color.value = value;
    }
    found(color.as_deref())
}

/// Removes a color.
#[delete("/colors/{name}")]
async fn remove(palette: web::Data<Palette>, name: web::Path<String>) -> HttpResponse {
    let mut colors = palette.lock();
    let position = colors.iter().position(|color| color.name == *name);
    let removed = position.map(|position| colors.remove(position));
    found(removed.as_ref())
}

#[actix_web::main]
async fn main() -> io::Result<()> {
    let args = Args::parse();
    let colors: Vec<Color> = serde_json::from_slice(&std::fs::read(args.seed)?)?;
    let palette = web::Data::new(Palette(Mutex::new(colors)));
    HttpServer::new(move || {
        let palette = palette.clone();
        App::new().app_data(palette).service(read_all).service(read_one).service(create).service(update).service(remove)
    })
    .tcp_nodelay(true)
    .bind((Ipv4Addr::LOCALHOST, args.port))?
    .run()
    .await
}

//! The colors API on actix-web, written the usual way, with the defaults of actix-web. It has a
//! thread for each processor, or as many as the variable THREADS says. Does nothing that the API
//! does not ask for.

mod api;
mod lists;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Mutex;

use actix_web::web::{Bytes, Data, Json, Path, PayloadConfig};
use actix_web::{App, HttpResponse, HttpServer, delete, get, post, put};
use serde_json::json;

use crate::api::{Color, Envelope, Update};

type Colors = Data<Mutex<Vec<Color>>>;

fn found(color: Option<&Color>) -> HttpResponse {
    match color {
        Some(color) => HttpResponse::Ok().json(color),
        None => HttpResponse::NotFound().json(json!({ "error": true })),
    }
}

#[get("/colors")]
async fn read_all(colors: Colors) -> HttpResponse {
    HttpResponse::Ok().json(Envelope { data: &colors.lock().expect("unpoisoned") })
}

#[put("/colors")]
async fn replace(colors: Colors, content: Bytes) -> HttpResponse {
    let Ok(list) = lists::parse(&content) else { return HttpResponse::BadRequest().finish() };
    let mut colors = colors.lock().expect("unpoisoned");
    *colors = list;
    HttpResponse::Ok().json(Envelope { data: &colors })
}

#[get("/colors/{name}")]
async fn read_one(colors: Colors, name: Path<String>) -> HttpResponse {
    found(colors.lock().expect("unpoisoned").iter().find(|color| color.name == *name))
}

#[post("/colors")]
async fn create(colors: Colors, color: Json<Color>) -> HttpResponse {
    colors.lock().expect("unpoisoned").push(color.clone());
    HttpResponse::Created().json(color)
}

#[put("/colors/{name}")]
async fn update(colors: Colors, name: Path<String>, update: Json<Update>) -> HttpResponse {
    let mut colors = colors.lock().expect("unpoisoned");
    let mut color = colors.iter_mut().find(|color| color.name == *name);
    if let (Some(color), Some(value)) = (&mut color, update.into_inner().value) {
        color.value = value;
    }
    found(color.as_deref())
}

#[delete("/colors/{name}")]
async fn remove(colors: Colors, name: Path<String>) -> HttpResponse {
    let mut colors = colors.lock().expect("unpoisoned");
    let position = colors.iter().position(|color| color.name == *name);
    found(position.map(|position| colors.remove(position)).as_ref())
}

#[actix_web::main]
async fn main() -> io::Result<()> {
    let (port, colors) = api::arguments()?;
    let colors = Data::new(Mutex::new(colors));
    HttpServer::new(move || {
        App::new()
            .app_data(colors.clone())
            .app_data(PayloadConfig::new(lists::BYTES_MAX))
            .service(read_all)
            .service(replace)
            .service(read_one)
            .service(create)
            .service(update)
            .service(remove)
    })
    .workers(lists::threads()?)
    .bind((Ipv4Addr::LOCALHOST, port))?
    .run()
    .await
}

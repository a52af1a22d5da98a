//! The OpenAPI 3.1 document: `openapi.json`, into which the base path and the common fields of all
//! responses are put when it is made.

use crate::options::BasePath;
use crate::representation::Representation;

/// The fields that every response has, or may have. `components.headers` of the file describes
/// them. Vary is not among them: the response with the page describes it in other words.
const FIELDS: [&str; 9] = [
    "Date",
    "Cache-Control",
    "X-Content-Type-Options",
    "Cross-Origin-Resource-Policy",
    "X-Frame-Options",
    "Connection",
    "Keep-Alive",
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
];

/// Stands for [`FIELDS`] in each response of the file.
const MARKER: &str = r#""...": "the fields of each response, which openapi.rs puts here""#;

/// The document of a service below `base`. Its server is the path alone: clients resolve it against
/// the address that they read the document from (OpenAPI 3.1, Server Object). A proxy in front may
/// have another scheme and host.
pub(super) fn openapi(base: &BasePath) -> Representation {
    let server = format!(r#""url": "/{}""#, base.as_str().trim_start_matches('/'));
    let fields =
        FIELDS.map(|name| format!(r##""{name}": {{"$ref": "#/components/headers/{name}"}}"##));
    let json: String = include_str!("openapi.json")
        .replacen(r#""url": "/""#, &server, 1)
        .replace(MARKER, &fields.join(","))
        .lines()
        .map(str::trim_start)
        .collect();
    Representation::new((json + "\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_response_has_the_fields_of_each() {
        let document = openapi(&BasePath::default());
        let document: Value = serde_json::from_slice(document.bytes()).unwrap();
        for (name, response) in document["components"]["responses"].as_object().unwrap() {
            let headers = response["headers"].as_object().unwrap();
            let is_whole = FIELDS.iter().all(|field| headers.contains_key(*field));
            assert!(is_whole && headers.values().all(Value::is_object), "{name}");
        }
    }
}

//! The OpenAPI document by itself: what generators, editors and Swagger UI make of it.

use serde_json::json;

use crate::wire::openapi::Document;

#[test]
fn generators_and_swagger_ui_find_what_they_need() {
    let document = Document::new();
    let components = &document.0["components"];
    assert!(document.0["info"]["contact"]["name"].is_string());
    for (name, parameter) in components["parameters"].as_object().unwrap() {
        // Swagger UI fills in what is an example, and a condition hardly ever holds
        assert_eq!(parameter.get("example").is_some(), parameter["in"] == "path", "{name}");
    }
    for (name, field) in components["headers"].as_object().unwrap() {
        assert_eq!(field["schema"], json!({ "type": "string" }), "{name}");
    }
    // Python's typing; TypeScript's, PHP's and Go's error; Go's constructors
    let taken = ["Any", "Dict", "List", "Optional", "Set", "Tuple", "Union", "Error"];
    let schemas = components["schemas"].as_object().unwrap();
    // `data_file` has what the service takes
    for schema in ["Color", "ColorCreate"] {
        assert_eq!(schemas[schema]["properties"]["name"]["maxLength"], 4096);
    }
    for (name, schema) in schemas {
        assert!(!taken.contains(&name.as_str()), "{name}");
        assert!(!schemas.keys().any(|other| *name == format!("New{other}")), "{name}");
        for (member, schema) in schema["properties"].as_object().into_iter().flatten() {
            // generators take the values of a constant for strings
            assert!(schema.get("type").is_some(), "{name}: {member}");
            assert_eq!(schema.get("const"), None, "{name}: {member}");
        }
    }
}

#[test]
fn every_example_of_it_is_valid() {
    let document = Document::new();
    let components = &document.0["components"];
    for (name, described) in components["headers"].as_object().unwrap() {
        document.validate(&described["schema"], &described["example"], name);
    }
    for operation in document.operations() {
        for status in operation.statuses() {
            let what = format!("{} {} {status}", operation.method, operation.path);
            let response = document.response(&operation, &status);
            if let Some(content) = response.pointer("/content/application~1json") {
                document.validate(&content["schema"], content.get("example").expect(&what), &what);
            }
        }
        let request = &operation.description["requestBody"];
        if let Some(content) = request.pointer("/content/application~1json") {
            for example in operation.example_contents() {
                let example = serde_json::from_str(&example).unwrap();
                document.validate(&content["schema"], &example, operation.path);
            }
        }
    }
}

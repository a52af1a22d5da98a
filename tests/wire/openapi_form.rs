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
    for (name, schema) in components["schemas"].as_object().unwrap() {
        for (member, schema) in schema["properties"].as_object().into_iter().flatten() {
            // generators take the values of a constant for strings
            assert!(
                schema.get("type").is_some() && schema.get("const").is_none(),
                "{name}: {member}"
            );
        }
    }
}

#[test]
fn no_schema_has_a_name_that_generated_code_has_for_something_else() {
    let document = Document::new();
    let names: Vec<&String> =
        document.0["components"]["schemas"].as_object().unwrap().keys().collect();
    for name in &names {
        // Python's typing; TypeScript's, PHP's and Go's error; Go's constructors
        assert!(
            !["Any", "Dict", "List", "Optional", "Set", "Tuple", "Union", "Error"]
                .contains(&name.as_str()),
            "{name}"
        );
        assert!(!names.iter().any(|other| **name == format!("New{other}")), "{name}");
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
            if let Some(content) =
                document.response(&operation, &status).pointer("/content/application~1json")
            {
                document.validate(&content["schema"], content.get("example").expect(&what), &what);
            }
        }
        if let Some(content) =
            operation.description.pointer("/requestBody/content/application~1json")
        {
            for example in operation.example_contents() {
                document.validate(
                    &content["schema"],
                    &serde_json::from_str(&example).unwrap(),
                    operation.path,
                );
            }
        }
    }
}

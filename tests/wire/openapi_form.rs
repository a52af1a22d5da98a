//! The OpenAPI document by itself: its examples, and that docs/http.md says the same.

use std::collections::BTreeSet;

use crate::wire::openapi::{Document, Operation};
use crate::wire::readme::rows;

const HTTP: &str = include_str!("../../docs/http.md");

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

#[test]
fn the_document_for_people_has_the_same_statuses() {
    let document = Document::new();
    let operations = document.operations();
    let refusals: BTreeSet<String> = operations
        .iter()
        .flat_map(Operation::statuses)
        .filter(|status| status.as_str() >= "400")
        .collect();
    let rows = rows_of_document("| status |");
    let told: BTreeSet<String> = rows.iter().flat_map(|row| statuses_in(row[0])).collect();
    assert_eq!(told, refusals);
    let methods = ["GET", "HEAD", "POST", "PUT", "DELETE"];
    for row in rows_of_document("| resource |") {
        let path = row[0].trim_matches('`').replace("<name>", "{name}");
        for (method, cell) in methods.into_iter().zip([1, 1, 2, 3, 4].map(|column| row[column])) {
            let documented = operations
                .iter()
                .find(|operation| operation.path == path && operation.method == method);
            let shown: BTreeSet<String> = statuses_in(cell).collect();
            match documented {
                Some(operation) => assert!(
                    !shown.is_empty() && shown.is_subset(&operation.statuses()),
                    "{method} {path}: {cell}"
                ),
                None => assert_eq!(cell, "405", "{method} {path}"),
            }
        }
    }
}

/// The rows of the table in docs/http.md whose head begins like this, cell by cell.
pub(super) fn rows_of_document(head: &str) -> Vec<Vec<&'static str>> {
    rows(HTTP, head)
        .into_iter()
        .map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// The numbers of three digits in a text.
fn statuses_in(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_ascii_digit()).filter(|digits| digits.len() == 3).map(str::to_owned)
}

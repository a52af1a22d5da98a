//! The OpenAPI document against the running service: each resource, method, status, field and
//! content it describes, and no others. Its examples are valid, and docs/http.md says the same.

use std::collections::BTreeSet;
use std::io::Write as _;

use serde_json::{Value, json};

use crate::common::client::Response;
use crate::common::harness::{Server, eventually};
use crate::wire::readme::rows;
use crate::wire::token::{Guarded, TOKEN};
use crate::wire::waiting::wait_on;

const HTTP: &str = include_str!("../../docs/http.md");

struct Document(Value);

struct Operation<'a> {
    method: String,
    path: &'a str,
    description: &'a Value,
    /// Those of the operation and of its path.
    parameters: Vec<&'a Value>,
}

impl Document {
    fn new() -> Self {
        let served = Server::start(&[]).ask("GET", "/openapi.json", "");
        Self(serde_json::from_str(&served.content).unwrap())
    }

    /// What a reference points to, or the value itself.
    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value.get("$ref") {
            Some(reference) => self
                .0
                .pointer(reference.as_str().unwrap().trim_start_matches('#'))
                .expect("a reference points to something"),
            None => value,
        }
    }

    fn operations(&self) -> Vec<Operation<'_>> {
        let mut operations = Vec::new();
        for (path, item) in self.0["paths"].as_object().unwrap() {
            let descriptions = item.as_object().unwrap().iter();
            for (method, description) in descriptions.filter(|(key, _)| *key != "parameters") {
                let lists = [item, description].map(|each| each["parameters"].as_array());
                let parameters = lists.into_iter().flatten().flatten();
                let parameters = parameters.map(|each| self.resolve(each)).collect();
                let method = method.to_uppercase();
                operations.push(Operation { method, path, description, parameters });
            }
        }
        operations
    }

    /// Checks a value against a schema, which may refer to the document's components.
    #[track_caller]
    fn validate(&self, schema: &Value, value: &Value, what: &str) {
        let mut schema = schema.clone();
        schema["components"] = self.0["components"].clone();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let errors: Vec<_> = validator.iter_errors(value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{what}: {value}: {errors:?}");
    }

    #[track_caller]
    fn response<'a>(&'a self, operation: &Operation<'a>, status: &str) -> &'a Value {
        let response = operation.description["responses"].get(status);
        let is_missing = || panic!("{} {}: {status}", operation.method, operation.path);
        self.resolve(response.unwrap_or_else(is_missing))
    }

    /// Checks that a real response is as documented: its status, each of its fields, its content.
    #[track_caller]
    fn check(&self, operation: &Operation<'_>, real: &Response) {
        let what = format!("{} {}: {real:?}", operation.method, operation.path);
        let documented = self.response(operation, &real.status.to_string());
        let fields = documented["headers"].as_object().unwrap();
        for (name, _) in real.fields.iter().filter(|(name, _)| name != "Content-Type") {
            assert!(fields.contains_key(name), "{name}: {what}");
        }
        for (name, field) in fields {
            let is_required = self.resolve(field)["required"] != false;
            assert!(!is_required || real.field(name).is_some(), "{name} is missing: {what}");
        }
        // generated clients fail on content that is announced and does not come
        if operation.method == "HEAD" {
            return assert_eq!(documented.get("content"), None, "{what}");
        }
        let media_type = documented
            .get("content")
            .map(|content| content.as_object().unwrap().keys().next().unwrap().as_str());
        let sent = real.field("content-type");
        let sent = sent.map(|value| value.trim_end_matches("; charset=utf-8"));
        assert_eq!(media_type, sent, "{what}");
        let content = documented.pointer("/content/application~1json");
        if let Some(content) = content {
            self.validate(&content["schema"], &serde_json::from_str(&real.content).unwrap(), &what);
        }
    }
}

impl Operation<'_> {
    /// The path with the example of its parameter.
    fn target(&self) -> String {
        self.path.replace("{name}", "rebeccapurple")
    }

    /// The field line that has the page be there; a document cannot have Accept as a parameter
    /// (OpenAPI 3.1, Parameter Object).
    fn accept(&self) -> &'static str {
        if self.path == "/" { "Accept: text/html\r\n" } else { "" }
    }

    /// Field lines with all its header parameters, for conditions that hold.
    fn condition_fields(&self) -> String {
        let fields = self.parameters.iter().filter(|parameter| parameter["in"] == "header");
        let conditions = fields.map(|field| match field["name"].as_str().unwrap() {
            "If-Match" => "If-Match: *\r\n",
            "If-None-Match" => "If-None-Match: \"0123456789abcdef0123456789abcdef\"\r\n",
            "Prefer" => "Prefer: wait=60\r\n",
            other => panic!("a value for {other} belongs here"),
        });
        self.accept().to_owned() + &conditions.collect::<String>()
    }

    /// The examples of its content; nothing at all when it takes none.
    fn example_contents(&self) -> Vec<String> {
        match self.description.pointer("/requestBody/content/application~1json/examples") {
            Some(Value::Object(examples)) => {
                examples.values().map(|example| example["value"].to_string()).collect()
            }
            _ => vec![String::new()],
        }
    }

    fn statuses(&self) -> BTreeSet<String> {
        self.description["responses"].as_object().unwrap().keys().cloned().collect()
    }
}

#[test]
fn exactly_the_operations_that_may_need_a_token_say_so() {
    let (document, private) = (Document::new(), Guarded::start(&["--private"]));
    assert_eq!(document.0["security"], json!([]));
    for operation in document.operations() {
        let (method, target) = (&operation.method, operation.target());
        let refused = private.ask(method, &target, "", "");
        let is_needed = refused.status == 401;
        assert_eq!(operation.statuses().contains("401"), is_needed, "{method} {target}");
        if is_needed {
            document.check(&operation, &refused);
            let wrong = private.ask(method, &target, "Bearer wrong", "");
            let challenge = r#"Bearer realm="colors", error="invalid_token""#;
            wrong.expect_field(401, "www-authenticate", Some(challenge));
            document.check(&operation, &wrong);
        }
        let expected = if is_needed { json!([{}, { "token": [] }]) } else { Value::Null };
        assert_eq!(operation.description["security"], expected, "{method} {target}");
        let content = &operation.example_contents()[0];
        let real = private.ask(method, &target, &format!("Bearer {TOKEN}"), content);
        assert_ne!(real.status, 401);
        document.check(&operation, &real);
    }
    assert_eq!(document.0["components"]["securitySchemes"]["token"]["scheme"], "bearer");
}

/// Whether everything in `example` is in `real`: all fields of objects, the first entries of
/// arrays.
fn shows(example: &Value, real: &Value) -> bool {
    match (example, real) {
        (Value::Object(example), Value::Object(real)) => {
            example.iter().all(|(key, value)| real.get(key).is_some_and(|r| shows(value, r)))
        }
        (Value::Array(example), Value::Array(real)) => {
            example.len() <= real.len() && example.iter().zip(real).all(|(e, r)| shows(e, r))
        }
        _ => example == real,
    }
}

#[test]
fn it_is_served_with_the_base_path_as_the_server() {
    let mut document = Document::new();
    assert_eq!(document.0["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document.0["servers"].as_array().unwrap().len(), 1);
    // OpenAPI 3.1, Server Object: an absolute path has the host of the document's address; paths
    // are appended to it
    assert_eq!(document.0["servers"][0]["url"], "/");
    document.0["servers"][0]["url"] = "/api/v1".into();
    let served =
        Server::start(&["--base-path", "/api/v1"]).ask("GET", "/api/v1/openapi.json", "").content;
    assert_eq!(serde_json::from_str::<Value>(&served).unwrap(), document.0);
}

#[test]
fn it_has_exactly_the_resources_and_methods_of_the_service() {
    let (document, server) = (Document::new(), Server::start(&[]));
    let rows = rows_of_document("| resource |");
    let resources: BTreeSet<String> =
        rows.iter().map(|row| row[0].trim_matches('`').replace("<name>", "{name}")).collect();
    let operations = document.operations();
    assert_eq!(
        operations.iter().map(|each| each.path.to_owned()).collect::<BTreeSet<_>>(),
        resources
    );
    for path in resources {
        let of_path: Vec<_> = operations.iter().filter(|each| each.path == path).collect();
        let documented: BTreeSet<_> = of_path.iter().map(|each| each.method.as_str()).collect();
        let (target, accept) = (of_path[0].target(), of_path[0].accept());
        let response = server.ask_with("OPTIONS", &target, accept, "");
        let allowed: BTreeSet<&str> = response.field("allow").unwrap().split(", ").collect();
        assert_eq!(documented, allowed, "{path}");
    }
}

#[test]
fn every_example_request_has_the_first_documented_response_and_its_example() {
    let document = Document::new();
    let mut names = document.operations().into_iter().flat_map(|operation| operation.parameters);
    let expected = "rebeccapurple";
    assert_eq!(names.find(|parameter| parameter["in"] == "path").unwrap()["example"], expected);
    for operation in document.operations() {
        for content in operation.example_contents() {
            let (server, fields) = (Server::start(&[]), operation.condition_fields());
            let real = server.ask_with(&operation.method, &operation.target(), &fields, &content);
            document.check(&operation, &real);
            assert_eq!(Some(&real.status.to_string()), operation.statuses().first());
            let documented = document.response(&operation, &real.status.to_string());
            // HEAD has none
            if let Some(example) = documented.pointer("/content/application~1json/example") {
                // the examples are those of a release
                let content =
                    real.content.replace(env!("BUILD_VERSION"), env!("CARGO_PKG_VERSION"));
                let content = serde_json::from_str(&content).unwrap();
                assert!(shows(example, &content), "{example} {real:?}");
            }
        }
    }
}

#[test]
fn every_documented_status_can_be_had_and_is_as_documented() {
    let document = Document::new();
    let server = Server::start(&[]);
    let read_only = Server::start(&["--read-only"]);
    let hasty = Server::start(&["--request-timeout", "100ms"]);
    let create = "If-None-Match: *\r\n";
    for operation in document.operations() {
        let (method, target) = (&operation.method, operation.target());
        let ask = |target: &str, fields: &str| server.ask_with(method, target, fields, "");
        let ask_with = |fields: &str| {
            let fields = operation.accept().to_owned() + fields;
            server.ask_with(method, &target, &fields, &operation.example_contents()[0])
        };
        for status in operation.statuses() {
            let real = match status.as_str() {
                "201" if method == "PUT" => {
                    let content = &operation.example_contents()[0];
                    let real = server.ask_with(method, "/colors/ink", create, content);
                    assert!(real.field("location").is_some());
                    real
                }
                // see the examples, and which operations may need a token
                "200" | "201" | "204" | "401" => continue,
                // for bugs, failures of the disk, indexes of others, etcd, a stop, lack of memory
                "409" | "500" | "503" | "507" => continue,
                "304" => ask_with("If-None-Match: *\r\n"),
                "400" => ask_with("Content-Length: x\r\n"),
                "403" => ask(&format!("http://evil.example{target}"), ""),
                "404" if operation.path == "/" => ask("/", "Accept: */*\r\n"),
                "404" => ask("/colors/no", ""),
                "405" => read_only.ask(method, &target, ""),
                // without a response if none of it has come in time
                "408" => eventually("a request is begun", || {
                    let mut client = hasty.connect();
                    client.stream.write_all(format!("{method} {target} ").as_bytes()).ok()?;
                    let has_come = client.stream.peek(&mut [0]).is_ok_and(|length| length > 0);
                    has_come.then(|| client.response_to(method))
                }),
                "412" => {
                    if !["GET", "HEAD"].contains(&method.as_str()) {
                        let real = ask_with(create);
                        real.expect_status(412);
                        document.check(&operation, &real);
                    }
                    ask_with("If-Match: \"x\"\r\n")
                }
                "413" => ask(&target, "Content-Length: 1048577\r\n"),
                "414" => ask(&format!("{target}?{}", "x".repeat(64 * 1024)), ""),
                "415" => ask_with("Content-Encoding: gzip\r\n"),
                "417" => ask_with("Expect: wonders\r\n"),
                "431" => ask_with(&"X: y\r\n".repeat(100)),
                "501" => ask(&target, "Transfer-Encoding: gzip, chunked\r\n"),
                "505" => server
                    .connect()
                    .send(format!("{method} {target} HTTP/2.0\r\nHost: localhost\r\n\r\n"))
                    .response_to(method),
                _ => panic!("a request that has the status {status} belongs here"),
            };
            assert_eq!(real.status.to_string(), status, "{method} {target}: {real:?}");
            document.check(&operation, &real);
        }
    }
}

#[test]
fn the_answers_to_those_who_wait_are_as_documented() {
    let document = Document::new();
    for operation in document.operations() {
        let (method, target) = (&operation.method, operation.target());
        let server = Server::start(&[]);
        let ask = |fields: &str| server.ask_with(method, &target, fields, "");
        let takes = operation.parameters.iter().any(|parameter| parameter["name"] == "Prefer");
        let real = ask("Accept: text/html\r\nIf-None-Match: *\r\nPrefer: wait=0\r\n");
        assert_eq!(takes, real.field("preference-applied").is_some(), "{method} {target}");
        if !takes {
            continue;
        }
        real.expect_status(304);
        document.check(&operation, &real);
        // `token` has one that is withdrawn
        let withdrawn = document.response(&operation, "401");
        assert!(withdrawn["headers"]["Preference-Applied"].is_object());
        for change in ["PUT", "DELETE"] {
            let mut client = wait_on(&server, method, &target);
            server.ask(change, "/colors/rebeccapurple", r#"{"value":"1"}"#).expect_status(200);
            let real = client.response_to(method);
            assert!(real.field("preference-applied").is_some(), "{method} {target}");
            document.check(&operation, &real);
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
fn rows_of_document(head: &str) -> Vec<Vec<&'static str>> {
    rows(HTTP, head)
        .into_iter()
        .map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// The numbers of three digits in a text.
fn statuses_in(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_ascii_digit()).filter(|digits| digits.len() == 3).map(str::to_owned)
}

//! Random sequences of operations: the service and ten lines of `Vec` must agree after every one.

use crate::common::harness::Server;

/// The specification's list in its plainest form.
#[derive(Default)]
struct Model(Vec<(String, String)>);

impl Model {
    fn json(&self) -> String {
        let colors: Vec<String> = self.0.iter().map(Self::color).collect();
        format!(r#"{{"data":[{}]}}"#, colors.join(","))
    }

    fn color((name, value): &(String, String)) -> String {
        format!(
            r#"{{"name":{},"value":{}}}"#,
            serde_json::to_string(name).unwrap(),
            serde_json::to_string(value).unwrap()
        )
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(known, _)| known == name)
    }
}

/// Names that a path, JSON or a comparison may get wrong; few, so that they meet each other often.
const NAMES: [&str; 10] = ["", "a", "A", "a/b", "a b", "%41", "é", "e\u{301}", "\"\\\n", ".."];

/// A path segment with everything escaped.
fn segment(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn the_service_and_the_model_agree() {
    for seed in 1..=20_u64 {
        for server in Server::of_both_kinds("[]") {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut client, mut model) = (server.connect(), Model::default());
            for step in 0..250 {
                let (name, value) = (NAMES[random.usize(..NAMES.len())], format!("{seed}-{step}"));
                let target = format!("/colors/{}", segment(name));
                let place = model.position(name);
                let (response, expected) = match random.u32(..33) {
                    // seldom, so that lists become long between two of them
                    0 => {
                        random.shuffle(&mut model.0);
                        model.0.truncate(random.usize(..=model.0.len()));
                        model.0.insert(0, (name.to_owned(), value));
                        let content = model.json();
                        (client.ask("PUT", "/colors", &content), (200, Some(content)))
                    }
                    1..=9 => {
                        let color = (name.to_owned(), value);
                        let content = Model::color(&color);
                        model.0.push(color);
                        (client.ask("POST", "/colors", &content), (201, Some(content)))
                    }
                    10..=14 => {
                        let response =
                            client.ask("PUT", &target, &format!(r#"{{"value":"{value}"}}"#));
                        let changed = place.map(|place| {
                            model.0[place].1 = value;
                            Model::color(&model.0[place])
                        });
                        (response, (200, changed))
                    }
                    15..=19 => (
                        client.ask("DELETE", &target, ""),
                        (200, place.map(|place| Model::color(&model.0.remove(place)))),
                    ),
                    20..=24 => (
                        client.ask("PUT", &target, "{}"),
                        (200, place.map(|place| Model::color(&model.0[place]))),
                    ),
                    25..=27 => {
                        let content = format!(r#"{{"value":"{value}"}}"#);
                        let fields = "If-None-Match: *\r\n";
                        let response = client.ask_with("PUT", &target, fields, &content);
                        if place.is_some() {
                            let content = response.content.clone();
                            (response, (412, Some(content)))
                        } else {
                            let color = (name.to_owned(), value);
                            let content = Model::color(&color);
                            model.0.push(color);
                            (response, (201, Some(content)))
                        }
                    }
                    _ => (
                        client.ask("GET", &target, ""),
                        (200, place.map(|place| Model::color(&model.0[place]))),
                    ),
                };
                let (status, content) = match expected {
                    (status, Some(content)) => (status, content),
                    (_, None) => (404, r#"{"error":true}"#.to_owned()),
                };
                let list = client.ask("GET", "/colors", "").content;
                let actual = (response.status, response.content, list);
                assert_eq!(actual, (status, content, model.json()), "seed {seed}, step {step}");
            }
        }
    }
}

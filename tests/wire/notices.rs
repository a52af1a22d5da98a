//! `packaging/debian/copyright`: the licenses of everything that the program contains. A test fails
//! when it is stale.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::harness::skip;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Makes the test write the file instead of comparing it: `WRITE_DOCUMENTS=1 cargo test notices`.
const WRITE: &str = "WRITE_DOCUMENTS";

/// What programs are built for: the notices are the same on each.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Licenses by preference where a library has several: SPDX identifier, the name in copyright files
/// of Debian, and how the name of its file ends.
const LICENSES: [(&str, &str, &str); 5] = [
    ("MIT", "Expat", "MIT"),
    ("Zlib", "Zlib", "ZLIB"),
    ("CC0-1.0", "CC0-1.0", "CC0"),
    ("Apache-2.0", "Apache-2.0", "APACHE"),
    ("MPL-2.0+", "MPL-2.0+", ""),
];

/// Stands in place of a text that Debian has on every system, and does not want again (lintian).
const APACHE: &str = " On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0;\n it is at https://www.apache.org/licenses/LICENSE-2.0 as well.\n";

/// The same, with what section 3.2 of the license asks for: where the source is.
const MPL: &str = " On Debian systems, the text is in /usr/share/common-licenses/MPL-2.0;\n it is at https://www.mozilla.org/MPL/2.0/ as well.\n The source is unchanged, and at\n";

/// What cargo prints; `None` where it cannot get at the sources of all libraries.
fn cargo(arguments: &[&str]) -> Option<String> {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--locked", "--color=never"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    if !output.status.success() {
        skip(&format!("cargo {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr)));
        return None;
    }
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The libraries in the program by name and version: none that only its build or its tests use.
fn libraries() -> Option<BTreeSet<String>> {
    let mut arguments = vec![
        "tree",
        "--package=colors",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
    ];
    arguments.extend(TARGETS.iter().flat_map(|target| ["--target", target]));
    let tree = cargo(&arguments)?;
    let words = tree.lines().filter_map(|line| line.split_once(" v"));
    let libraries = words.map(|(name, rest)| format!("{name}-{}", rest.split(' ').next().unwrap()));
    let is_own =
        |name: &String| ["colors-", "bounded_http-"].iter().any(|own| name.starts_with(own));
    Some(libraries.filter(|library| !is_own(library)).collect())
}

/// The file with the text of a license in the sources of a library.
#[track_caller]
fn license_file(sources: &Path, suffix: &str) -> PathBuf {
    let entries = fs::read_dir(sources).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let licenses = names.filter(|name| name.to_uppercase().starts_with("LICEN"));
    let best = licenses.min_by_key(|name| (!name.to_uppercase().ends_with(suffix), name.len()));
    sources.join(best.unwrap_or_else(|| panic!("no license in {}", sources.display())))
}

/// A text as the value of a field: each line is indented, and a dot stands on those that are empty.
fn indented(text: &str) -> String {
    let line = |line: &str| match line.trim_end() {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    };
    text.trim().lines().map(line).collect()
}

/// A paragraph for each text of a license, with the libraries that have it.
fn paragraphs() -> Option<String> {
    let libraries = libraries()?;
    let mut texts: BTreeMap<(&str, String, String), Vec<String>> = BTreeMap::new();
    let mut found = BTreeSet::new();
    let mut arguments = vec!["metadata", "--format-version=1"];
    arguments.extend(TARGETS.iter().flat_map(|target| ["--filter-platform", target]));
    let metadata: Value = serde_json::from_str(&cargo(&arguments)?).unwrap();
    for package in metadata["packages"].as_array().unwrap() {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let library = format!("{}-{}", text("name"), text("version"));
        if !libraries.contains(&library) {
            continue;
        }
        found.insert(library.clone());
        let terms: Vec<&str> = text("license").split([' ', '/', '(', ')']).collect();
        let license = LICENSES.iter().find(|(id, ..)| terms.contains(id));
        let (_, name, suffix) =
            license.unwrap_or_else(|| panic!("{library} has another license: {terms:?}"));
        assert!(!terms.contains(&"AND"), "{library} has several licenses at once: {terms:?}");
        let sources = Path::new(text("manifest_path")).parent().unwrap();
        let content = fs::read_to_string(license_file(sources, suffix)).unwrap();
        let is_holder = |line: &&str| line.starts_with("Copyright") && !line.contains('[');
        let holders: BTreeSet<_> = content.lines().map(str::trim).filter(is_holder).collect();
        let holders: String = holders.iter().map(|line| format!(" {line}\n")).collect();
        let authors = package["authors"].as_array().unwrap().iter();
        let authors: Vec<&str> = authors.filter_map(Value::as_str).collect();
        let authors = format!(" {}\n", authors.join(", "));
        let holders = if holders.is_empty() { authors } else { holders };
        let content = match *name {
            "Apache-2.0" => APACHE.to_owned(),
            "MPL-2.0+" => format!("{MPL}{}", indented(text("repository"))),
            _ => indented(&content),
        };
        texts.entry((name, content, holders)).or_default().push(library);
    }
    assert_eq!(found, libraries);
    let paragraphs = texts.iter().map(|((name, text, holders), libraries)| {
        let files = libraries.join("/*\n ");
        format!("Files:\n {files}/*\nCopyright:\n{holders}License: {name}\n{text}")
    });
    Some(paragraphs.collect::<Vec<_>>().join("\n"))
}

#[test]
fn the_copyright_file_has_the_license_of_every_library_in_the_program() {
    let Some(paragraphs) = paragraphs() else { return };
    let directory = Path::new(ROOT).join("packaging/debian");
    let expected = fs::read_to_string(directory.join("copyright.in"))
        .unwrap()
        .replace("@CRATES@\n", &paragraphs);
    if std::env::var_os(WRITE).is_some() {
        fs::write(directory.join("copyright"), &expected).unwrap();
    }
    let is_current =
        fs::read_to_string(directory.join("copyright")).is_ok_and(|content| content == expected);
    assert!(is_current, "packaging/debian/copyright is stale: {WRITE}=1 cargo test notices");
}

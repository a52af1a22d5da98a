//! The page for browsers: one HTML document, put together from its parts when the program is
//! compiled. Decides nothing.
//!
//! Style and script stand in the document, so that the page is one request and needs to know no
//! path but its own. The scripts are one module: each part may use what the parts before it
//! declare. Comments, and spaces that mean nothing, stay here.

use std::sync::{Arc, LazyLock};

use crate::http::{OtherType, Representation};

pub(super) static PAGE: LazyLock<Arc<Representation>> =
    LazyLock::new(|| Arc::new(Representation::new(html().as_bytes())));

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = concat!(
    include_str!("page/color.js"),
    include_str!("page/service.js"),
    include_str!("page/list.js"),
    include_str!("page/change.js"),
    include_str!("page/order.js"),
    include_str!("page/opened.js"),
    include_str!("page/file.js"),
    include_str!("page/main.js"),
);

fn html() -> String {
    let [head, body] = [include_str!("page/head.html"), include_str!("page/body.html")].map(served);
    [
        &head,
        "<style>",
        &style(),
        "</style>\n</head>\n",
        &body,
        "<script type=\"module\">",
        &script(),
        "</script>\n</html>\n",
    ]
    .concat()
}

/// A part as browsers get it: without indentation, empty lines, and comments.
fn served(source: &str) -> String {
    let is_comment =
        |line: &str| line.starts_with("//") || line.starts_with("/*") && line.ends_with("*/");
    let lines = source.lines().map(str::trim).filter(|line| !line.is_empty() && !is_comment(line));
    lines
        .flat_map(|line| {
            [line.split_once("; // ").map_or(line, |(code, _)| &line[..=code.len()]), "\n"]
        })
        .collect()
}

/// The style without the spaces and line breaks that mean nothing.
fn style() -> String {
    [(": ", ":"), ("; ", ";"), (", ", ","), (" {", "{"), ("{ ", "{"), (" }", "}"), ("\n", "")]
        .iter()
        .fold(served(STYLE), |style, (from, to)| style.replace(from, to))
}

/// The script without the spaces beside signs, the line breaks after them, and the semicolons that
/// end blocks. Texts keep theirs: a text ends where its quote comes again, so no template has
/// another one in it. In the source, what is no block ends with a semicolon.
fn script() -> String {
    let is_sign = |c: char| !c.is_alphanumeric() && !"_$+- \n".contains(c);
    let (mut script, mut quote) = (String::new(), None);
    let source = served(SCRIPT);
    let mut characters = source.chars().peekable();
    while let Some(c) = characters.next() {
        let before = script.chars().next_back().unwrap_or('\n');
        match (quote, c) {
            (None, '\'' | '`') => quote = Some(c),
            (None, ' ')
                if is_sign(before) || characters.peek().is_some_and(|&after| is_sign(after)) =>
            {
                continue;
            }
            (None, '\n') if ";,{([}".contains(before) => continue,
            (None, '}') if before == ';' => drop(script.pop()),
            (Some(begun), c) if begun == c => quote = None,
            _ => {}
        }
        script.push(c);
    }
    script
}

/// The page's media type, and its own fields.
pub(super) static TYPE: OtherType =
    OtherType { media_type: "text/html; charset=utf-8", fields: FIELDS };

/// The fields that only the page has, each line led by the line break that ends the one before.
///
/// Nothing runs or shows but what has these hashes, nothing is asked of another host, and no text
/// becomes markup. After a change of style or script the test below tells the new hashes.
const FIELDS: &str = concat!(
    "\r\nContent-Security-Policy: default-src 'none'; script-src 'sha256-",
    "6PI68yD2C1RXb355wjh04C64JIN/aToYdKe8W49gtXc=",
    "'; style-src 'sha256-",
    "i1SKL6kOG1uXwkskmLqR4n8xuA5pVTvVfO+7PPOMb38=",
    "'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'\r\nReferrer-Policy: no-referrer"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of all the parts together.
    const BYTES_MAX: usize = 48 * 1024;

    #[test]
    fn the_policy_has_the_hashes_of_style_and_script() {
        for (source, text) in [("script-src", script()), ("style-src", style())] {
            let directive = format!("{source} 'sha256-{}';", sha256_in_base64(&text));
            assert!(FIELDS.contains(&directive), "the policy has to have: {directive}");
        }
    }

    #[test]
    fn style_and_script_end_where_their_elements_do() {
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</script") && !SCRIPT.contains("<!--"));
    }

    #[test]
    fn the_page_is_small() {
        let bytes = html().len();
        assert!(bytes <= BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn the_page_needs_no_other_host() {
        let html = html();
        assert_eq!(
            html.matches("://").count(),
            html.matches("http://www.w3.org/2000/svg").count(),
            "addresses"
        );
    }

    /// A hash as policies have it (Content Security Policy Level 3 §2.3.1).
    fn sha256_in_base64(text: &str) -> String {
        use base64::Engine as _;
        use sha2::Digest as _;
        base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(text))
    }
}

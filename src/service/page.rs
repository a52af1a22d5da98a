//! The page for browsers: one HTML document, joined from its parts when the program is compiled.
//! The base path and the limit of a content are put into it at its first request. `admission`
//! decides who gets it.
//!
//! Style and script are in the document, so that one request gets all of the page, but for a second
//! script, which few need: it reads and writes files. The scripts of each are one module: a
//! function may use what any part declares, but code outside of functions only the variables that
//! stand before it.

use super::respond::read;
use crate::http::{MediaType, Request, Response};
use crate::options::Options;
use crate::representation::Representation;

/// The page of a service with these options.
pub(super) fn page(options: &Options) -> Representation {
    // Without a base path the link stays relative: a proxy may add a path of its own.
    let link = match options.base_path.as_str() {
        "" => "\"colors\">/colors".to_owned(),
        base => format!("\"{base}/colors\">{base}/colors"),
    };
    let limit = format!("data-content-max=\"{}\"", options.max_body);
    let html = compact(HTML);
    let html = html.replacen("data-content-max", &limit, 1).replace("\"colors\">/colors", &link);
    Representation::new(html.into_bytes())
}

/// The script that reads and writes files.
pub(super) fn files() -> Representation {
    Representation::new(compact(FILES).into_bytes())
}

/// A part of the page without what only its authors need, a fifth of it: indentation and comments.
/// Those between `/*` and `*/` are left out where they are lines of their own.
fn compact(source: &str) -> String {
    let lines = source.lines().map(|line| line.split(" // ").next().unwrap_or(line).trim());
    let is_comment =
        |line: &str| line.starts_with("//") || line.starts_with("/*") && line.ends_with("*/");
    lines
        .filter(|line| !line.is_empty() && !is_comment(line))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// The response to a GET or HEAD of a part of the page.
pub(super) fn respond(
    request: &Request<'_>,
    part: &Representation,
    media_type: MediaType,
) -> Response {
    let mut response = read(request, part.content(), part.tag());
    // An error is JSON here, too.
    if response.status.0 < 400 {
        response.media_type = media_type;
        response.fields.push(("Content-Security-Policy", POLICY.into()));
        response.fields.push(("Referrer-Policy", "no-referrer".into()));
    }
    response
}

const HTML: &str = concat!(
    include_str!("page/head.html"),
    "<style>",
    include_str!("page/style.css"),
    "</style>\n</head>\n",
    include_str!("page/body.html"),
    "<script type=\"module\">",
    include_str!("page/color.js"),
    include_str!("page/service.js"),
    include_str!("page/list.js"),
    include_str!("page/change.js"),
    include_str!("page/order.js"),
    include_str!("page/opened.js"),
    include_str!("page/file.js"),
    include_str!("page/main.js"),
    "</script>\n</html>\n",
);

const FILES: &str = concat!(
    include_str!("page/files/value.js"),
    include_str!("page/files/judge.js"),
    include_str!("page/files/binary.js"),
    include_str!("page/files/tree.js"),
    include_str!("page/files/style.js"),
    include_str!("page/files/xml.js"),
    include_str!("page/files/lines.js"),
    include_str!("page/files/table.js"),
    include_str!("page/files/read.js"),
    include_str!("page/files/write.js"),
);

/// What a browser lets the page do (Content Security Policy Level 3).
///
/// Only the style and the script with these hashes apply, and the script of this service, which is
/// [`FILES`]; the page loads nothing from other hosts, and no text becomes markup (Trusted Types).
/// After a change of style or script, a test below tells the new hash.
pub(super) const POLICY: &str = concat!(
    "default-src 'none'; script-src 'self' 'sha256-",
    "loajLD7Na0zcXAt271TtgQusvo+q07WeC8hyGoQ4XtI=",
    "'; style-src 'sha256-",
    "7OD+8Cce9Rte4VYh+2Ob26fnrlXo9/1yVY2H/BTLk6w=",
    "'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
);

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 128 * 1024; // of both parts; the first has less than 90 KiB

    /// What is between `begin` and `end`, the tags of an element.
    fn content_of(begin: &str, end: &str) -> String {
        compact(HTML).split_once(begin).unwrap().1.split_once(end).unwrap().0.to_owned()
    }

    #[test]
    fn the_policy_has_the_hashes_of_style_and_script() {
        let script = content_of("<script type=\"module\">", "</script>\n</html>");
        let style = content_of("<style>", "</style>\n</head>");
        for (source, text) in [("script-src 'self'", script), ("style-src", style)] {
            let directive = format!("{source} 'sha256-{}';", sha256_in_base64(&text));
            assert!(POLICY.contains(&directive), "the policy has to have: {directive}");
        }
        assert!(!POLICY.contains("unsafe") && !POLICY.contains('*'), "{POLICY}");
        let directives: Vec<&str> = POLICY.split("; ").collect();
        for directive in [
            "default-src 'none'",
            "require-trusted-types-for 'script'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(directives.contains(&directive), "{POLICY}");
        }
    }

    #[test]
    fn style_and_script_end_where_their_elements_do() {
        assert_eq!(HTML.matches("</style").count(), 1);
        assert_eq!((HTML.matches("</script").count(), HTML.matches("<!--").count()), (1, 0));
    }

    #[test]
    fn the_page_is_small() {
        let bytes = [HTML, FILES].map(|part| compact(part).len());
        assert!(bytes.iter().sum::<usize>() <= BYTES_MAX, "{bytes:?} bytes");
    }

    #[test]
    fn the_page_needs_no_other_host() {
        let namespaces = HTML.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(HTML.matches("://").count(), namespaces, "addresses");
    }

    /// What Safari 16, Firefox 115 or Chromium 109 lack; a browser that does not know the syntax of
    /// the first two runs nothing of a script.
    #[test]
    fn the_page_needs_no_young_browser() {
        let page = compact(HTML) + &compact(FILES);
        for young in ["(?<=", "(?<!", "light-dark(", ".toSorted(", ".toSpliced("] {
            assert!(!page.contains(young), "{young}");
        }
    }

    /// A hash as policies have it (Content Security Policy Level 3 §2.3.1).
    fn sha256_in_base64(text: &str) -> String {
        use base64::Engine as _;
        use sha2::Digest as _;
        base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(text))
    }
}

//! The matcher: decides which operation a request asks for, by its method and its target, and makes
//! the path of a color. Knows nothing of the colors that exist.

use std::borrow::Cow;
use std::iter;

use bounded_http::syntax::{has_valid_escapes, split_absolute_form};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use tiny_http::Method;

use crate::options::BasePath;

/// What a request asks for. An operation on one color has its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    ReadAll,
    Create,
    ReplaceAll,
    ReadOne(Cow<'a, str>),
    /// With `If-None-Match: *`, creates the color.
    Update(Cow<'a, str>),
    Delete(Cow<'a, str>),
    Health,
    Metrics,
    OpenApi,
    Page,
    /// The script with which the page reads and writes files.
    PageFiles,
    /// Asks which methods the target has.
    Options(Target<'a>),
}

/// What a request target names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// One or two segments below the base path, decoded. The base path itself is one empty segment.
    Path(Cow<'a, [u8]>, Option<Cow<'a, str>>),
    /// A path that is not below the base path, or has more than two segments there.
    Unknown,
    /// The service itself (RFC 9110 §9.3.7). Only OPTIONS names it, by `*`, or by an absolute-form
    /// target without path and query.
    Service,
}

impl<'a> Target<'a> {
    /// The operation that a method of this target is (docs/http.md, Resources). HEAD is a GET whose
    /// content is not sent. `None` if there is no such resource, or it does not have the method.
    /// Every resource has GET. [`Target::Service`] takes every method for OPTIONS.
    pub(super) fn operation(&self, method: &Method) -> Option<Operation<'a>> {
        use Method::{Delete, Get, Head, Options, Post, Put};
        let (first, second) = match self {
            Self::Path(first, second) => (first, second),
            Self::Unknown => return None,
            Self::Service => return Some(Operation::Options(Self::Service)),
        };
        Some(match (method, first.as_ref(), second) {
            (Get | Head, b"colors", None) => Operation::ReadAll,
            (Post, b"colors", None) => Operation::Create,
            (Put, b"colors", None) => Operation::ReplaceAll,
            (Get | Head, b"colors", Some(name)) => Operation::ReadOne(name.clone()),
            (Put, b"colors", Some(name)) => Operation::Update(name.clone()),
            (Delete, b"colors", Some(name)) => Operation::Delete(name.clone()),
            (Get | Head, b"health", None) => Operation::Health,
            (Get | Head, b"metrics", None) => Operation::Metrics,
            (Get | Head, b"openapi.json", None) => Operation::OpenApi,
            (Get | Head, b"", None) => Operation::Page,
            (Get | Head, b"page", Some(name)) if name == "files.js" => Operation::PageFiles,
            (Options, ..) if self.operation(&Get).is_some() => Operation::Options(self.clone()),
            _ => return None,
        })
    }

    /// Whether this is the target of the page, which is there only for clients that ask for HTML.
    pub(super) fn is_page(&self) -> bool {
        matches!(self, Self::Path(first, None) if first.is_empty())
    }
}

impl Operation<'_> {
    /// Whether `--private` protects it. Health, which tells how many colors there are, stays open.
    pub(super) fn is_private(&self) -> bool {
        matches!(self, Self::ReadAll | Self::ReadOne(_) | Self::Metrics)
    }
}

/// When the target is neither a path nor an http or https URL (RFC 9112 §3.2): 400.
const FORM: &str = "the request target has to be a path, as in /colors";

/// When an escape in the path is cut short or not hexadecimal, or decodes to no UTF-8: 400.
const ESCAPE: &str = "the path has a bad percent escape, or one that does not decode to UTF-8";

/// Finds out what a request target names below `base`. Fails with what is malformed.
///
/// The path is split at `/` first. Then each segment is percent-decoded, so that `%2F` is part of a
/// name. The query is ignored.
pub(super) fn parse<'a>(
    method: &Method,
    target: &'a [u8],
    base: &BasePath,
) -> Result<Target<'a>, &'static str> {
    let absolute_form = split_absolute_form(target);
    // RFC 9112 §3.2.4: OPTIONS of a URI with neither path nor query means `*`.
    if *method == Method::Options
        && (target == b"*" || absolute_form.is_some_and(|(_, path)| path.is_empty()))
    {
        return Ok(Target::Service);
    }
    let path = match absolute_form {
        // RFC 9110 §4.2.3: an empty path is the same as "/".
        Some((_, path)) => path.strip_prefix(b"/").unwrap_or(path),
        None => target.strip_prefix(b"/").ok_or(FORM)?,
    };
    // Also true if only the query has one, which does no harm: a path without escapes decodes to
    // itself.
    let has_escapes = path.contains(&b'%');
    let decodes = || {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        has_valid_escapes(path) && percent_decode(path).decode_utf8().is_ok()
    };
    // A malformed path is a 400 wherever it points.
    if has_escapes && !decodes() {
        return Err(ESCAPE);
    }
    let mut rest = Some(path);
    let mut segments = iter::from_fn(|| {
        let path = rest?;
        // A slash ends a segment, and a question mark the whole path.
        let end = path.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(path.len());
        let (segment, after) = path.split_at(end);
        rest = after.strip_prefix(b"/");
        Some(segment)
    });
    // RFC 3986 §2.1: only `%` begins an escape, so `+` stays a plus sign.
    let decode = |segment: &'a [u8]| match has_escapes {
        true => Cow::from(percent_decode(segment)),
        false => Cow::Borrowed(segment),
    };
    // Mostly there is no base path.
    let base = base.as_str();
    let mut is_next =
        |name: &str| segments.next().is_some_and(|it| *decode(it) == *name.as_bytes());
    if !base.is_empty() && !base.split('/').skip(1).all(&mut is_next) {
        return Ok(Target::Unknown);
    }
    let (first, second) = match (segments.next(), segments.next(), segments.next()) {
        (first, second, None) => (first.unwrap_or_default(), second),
        _ => return Ok(Target::Unknown),
    };
    let text = |segment: &'a [u8]| match has_escapes {
        true => percent_decode(segment).decode_utf8(),
        false => str::from_utf8(segment).map(Cow::Borrowed),
    };
    let second = second.map(|second| text(second).expect("the whole path decodes"));
    Ok(Target::Path(decode(first), second))
}

/// Longest path in a Location, in bytes. As a proxy, nginx takes 4 KiB of response head by default.
const LOCATION_BYTES_MAX: usize = 3500;

/// The path of the color `name`, for a Location field (RFC 3986 §3.3).
///
/// `None` if not all clients could follow it. Clients remove a dot segment even as `%2E` (URL
/// standard), and proxies after `%2F`. Or the path is longer than [`LOCATION_BYTES_MAX`].
pub(super) fn location_of(base: &BasePath, name: &str) -> Option<String> {
    /// All but the unreserved characters of RFC 3986 §2.3.
    const RESERVED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let path = format!("{}/colors/{}", base.as_str(), utf8_percent_encode(name, RESERVED));
    let has_dot_segment = name.split('/').any(|segment| matches!(segment, "." | ".."));
    (!has_dot_segment && path.len() <= LOCATION_BYTES_MAX).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operation that a method of a target is.
    fn find<'a>(
        method: Method,
        target: &'a str,
        base: &BasePath,
    ) -> Result<Option<Operation<'a>>, &'static str> {
        parse(&method, target.as_bytes(), base).map(|found| found.operation(&method))
    }

    fn read(name: &str) -> Result<Option<Operation<'_>>, &'static str> {
        Ok(Some(Operation::ReadOne(name.into())))
    }

    const READ_ALL: Result<Option<Operation<'_>>, &'static str> = Ok(Some(Operation::ReadAll));
    const PAGE: Result<Option<Operation<'_>>, &'static str> = Ok(Some(Operation::Page));
    const OPEN_API: Result<Option<Operation<'_>>, &'static str> = Ok(Some(Operation::OpenApi));

    #[test]
    fn targets_name_resources() {
        let table = [
            ("/colors", READ_ALL),
            ("/colors?name=red", READ_ALL),
            ("/%63olors", READ_ALL),
            ("http://example.org/colors", READ_ALL),
            ("HTTPS://example.org:8080/colors?x", READ_ALL),
            ("*", Err(FORM)),
            ("/health", Ok(Some(Operation::Health))),
            ("/health/", Ok(None)),
            ("/metrics", Ok(Some(Operation::Metrics))),
            ("/openapi.json", OPEN_API),
            ("/openapi%2Ejson", OPEN_API),
            ("/openapi.json/", Ok(None)),
            ("/openapi", Ok(None)),
            ("/colors/red", read("red")),
            ("/colors/red?x/y", read("red")),
            ("http://h/colors/red", read("red")),
            ("/colors/Red", read("Red")),
            ("/colors/", read("")),
            ("/colors/a%2Fb", read("a/b")),
            ("/colors/a%2fb%3F%23", read("a/b?#")),
            ("/colors/a+b%20c", read("a+b c")),
            ("/colors/%C3%A9", read("\u{e9}")),
            ("/colors/\u{e9}", read("\u{e9}")),
            ("/colors/\u{e9}%20%C3%A9?\u{e9}", read("\u{e9} \u{e9}")),
            ("/colors/\u{e9}%C3", Err(ESCAPE)),
            ("/colors/e%CC%81", read("e\u{301}")),
            ("/colors/%00", read("\0")),
            ("/colors/.", read(".")),
            ("/colors/..", read("..")),
            ("/colors/100%25", read("100%")),
            ("/", PAGE),
            ("/?x", PAGE),
            ("//", Ok(None)),
            ("/page/files.js?x", Ok(Some(Operation::PageFiles))),
            ("/page/files", Ok(None)),
            ("/page", Ok(None)),
            ("//colors", Ok(None)),
            ("/Colors", Ok(None)),
            ("/colors/a/b", Ok(None)),
            ("/colors/a/", Ok(None)),
            ("http://example.org", PAGE),
            ("http://example.org?x", PAGE),
            ("/colors/%", Err(ESCAPE)),
            ("/colors/%4", Err(ESCAPE)),
            ("/colors/%+1", Err(ESCAPE)),
            ("/colors/%zz", Err(ESCAPE)),
            ("/colors/%ff", Err(ESCAPE)),
            ("/colors/%C3", Err(ESCAPE)),
            ("/colors/%C3/%A9", Err(ESCAPE)),
            ("/colors/%ED%A0%80", Err(ESCAPE)),
            ("/colors/a/%", Err(ESCAPE)),
            ("/colors/a/b/%", Err(ESCAPE)),
            ("/x/%", Err(ESCAPE)),
            ("colors", Err(FORM)),
            ("?x", Err(FORM)),
            ("ftp://h/colors", Err(FORM)),
            ("example.org:80", Err(FORM)),
        ];
        for (target, expected) in table {
            assert_eq!(find(Method::Get, target, &BasePath::default()), expected, "{target:?}");
        }
    }

    #[test]
    fn options_may_ask_about_the_service_itself() {
        let service = || Ok(Some(Operation::Options(Target::Service)));
        for base in [BasePath::default(), BasePath::parse("/api").unwrap()] {
            for target in ["*", "http://example.org", "HTTPS://example.org:81"] {
                assert_eq!(find(Method::Options, target, &base), service(), "{target}");
                assert_ne!(
                    parse(&Method::Get, target.as_bytes(), &base),
                    Ok(Target::Service),
                    "{target}"
                );
            }
            for target in ["http://example.org/", "http://example.org?x", "/", "**"] {
                assert_ne!(find(Method::Options, target, &base), service(), "{target}");
            }
        }
    }

    #[test]
    fn with_a_base_path_everything_sits_below_it() {
        let base = BasePath::parse("/api/v1/").unwrap();
        let table = [
            ("/api/v1/colors", READ_ALL),
            ("/api/v1/colors/red", read("red")),
            ("/%61pi/v1/colors", READ_ALL),
            ("/api/v1/openapi.json", OPEN_API),
            ("/openapi.json", Ok(None)),
            ("/colors", Ok(None)),
            ("/api/colors", Ok(None)),
            ("/api/v1", PAGE),
            ("/api/v1/", PAGE),
            ("/api/v1//", Ok(None)),
            ("/api/v1/page/files.js", Ok(Some(Operation::PageFiles))),
            ("/page/files.js", Ok(None)),
            ("/", Ok(None)),
            ("/api", Ok(None)),
            ("/api/v1x/colors", Ok(None)),
            ("/x/y/z/%", Err(ESCAPE)),
        ];
        for (target, expected) in table {
            assert_eq!(find(Method::Get, target, &base), expected, "{target:?}");
        }
    }

    #[test]
    fn a_location_finds_its_color_again() {
        let base = BasePath::parse("/api").unwrap();
        for (name, location) in [
            ("red", "/api/colors/red"),
            ("a/b c%", "/api/colors/a%2Fb%20c%25"),
            ("\u{e9}\r\n", "/api/colors/%C3%A9%0D%0A"),
            ("", "/api/colors/"),
            ("...", "/api/colors/..."),
            ("a//..b/", "/api/colors/a%2F%2F..b%2F"),
            ("-._~", "/api/colors/-._~"),
            ("a\0b", "/api/colors/a%00b"),
        ] {
            assert_eq!(location_of(&base, name).as_deref(), Some(location));
            assert_eq!(find(Method::Get, location, &base), read(name));
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut character = || if random.bool() { random.char(..) } else { random.char(..'~') };
            let name: String = [(); 5].map(|()| character()).into_iter().collect();
            let location = location_of(&base, &name).expect("it has no dot segment, and is short");
            assert_eq!(find(Method::Get, &location, &base), read(&name));
        }
        for name in [".", "..", "../metrics", "./a", "a/.", "a/../b", "/.."] {
            assert_eq!(location_of(&base, name), None, "{name:?}");
        }
        let longest = "x".repeat(3500 - "/api/colors/".len());
        assert_eq!(location_of(&base, &longest).map(|path| path.len()), Some(3500));
        assert_eq!(location_of(&base, &(longest + "x")), None);
    }
}

//! What the fuzz targets `paths` and `tokens` check.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, memfd_create};
use tiny_http::Method;

use super::target::{BasePath, Resource, TargetError, find};
use super::token::Tokens;
use crate::http::Credentials;

/// A target names what the reference finds, and the path that the service writes for a name leads
/// back to that name.
pub fn paths(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    for base in ["", "/api", "/a/b"] {
        let base_path = BasePath::parse(base).expect("it is one");
        check_name(text, &base_path);
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            continue; // the parser lets no such target through
        }
        for method in [Method::Options, Method::Get] {
            let found = find(&method, text, &base_path);
            assert_eq!(found, reference(&method, text, base));
            if let Ok(Resource::Color(name)) = found {
                check_name(&name, &base_path);
            }
        }
    }
    let _ = BasePath::parse(text).map(|base| check_name("a/b", &base));
}

/// Writes the path of a name and reads it again.
fn check_name(name: &str, base: &BasePath) {
    let Some(path) = base.location_of(name) else {
        return assert!([".", ".."].contains(&name) || name.len() > 1000, "{name:?}");
    };
    assert!(
        path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%/".contains(&byte)),
        "{path}"
    );
    assert!(path.len() <= 3500);
    assert_eq!(find(&Method::Get, &path, base), Ok(Resource::Color(name.into())));
}

/// What a target names, by cutting it into decoded segments first.
fn reference<'a>(method: &Method, target: &str, base: &str) -> Result<Resource<'a>, TargetError> {
    if target == "*" && *method == Method::Options {
        return Ok(Resource::Asterisk);
    }
    let lower = target.to_ascii_lowercase();
    let mut path = target.to_owned();
    if let Some(scheme) =
        ["http://", "https://"].into_iter().find(|scheme| lower.starts_with(scheme))
    {
        let rest = &target[scheme.len()..];
        path = rest[rest.find(['/', '?']).unwrap_or(rest.len())..].to_owned();
        if path.is_empty() && *method == Method::Options {
            return Ok(Resource::Asterisk);
        }
        if !path.starts_with('/') {
            path.insert(0, '/');
        }
    }
    let path = path.split('?').next().unwrap_or_default();
    if !path.starts_with('/') {
        return Err(TargetError::Form);
    }
    let segments =
        path[1..].split('/').map(decode).collect::<Option<Vec<_>>>().ok_or(TargetError::Escape)?;
    let base: Vec<&str> = base.split('/').skip(1).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.strip_prefix(&base[..]).ok_or(TargetError::Unknown)? {
        [] | [""] => Ok(Resource::Page),
        ["colors"] => Ok(Resource::Colors),
        ["colors", name] => Ok(Resource::Color((*name).to_owned().into())),
        ["health"] => Ok(Resource::Health),
        ["metrics"] => Ok(Resource::Metrics),
        ["openapi.json"] => Ok(Resource::OpenApi),
        _ => Err(TargetError::Unknown),
    }
}

fn decode(segment: &str) -> Option<String> {
    let (mut rest, mut decoded) = (segment.as_bytes(), Vec::new());
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits =
                str::from_utf8(after.get(..2)?).ok().filter(|digits| !digits.contains('+'))?;
            decoded.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            decoded.push(*first);
            rest = after;
        }
    }
    String::from_utf8(decoded).ok()
}

/// A token file is taken when every line is a token with or without a name, a comment or blank;
/// then its tokens pass under their names, and others do not. No error shows a line.
pub fn tokens(data: &[u8]) {
    thread_local! {
        /// A file in memory.
        static FILE: File = File::from(memfd_create("tokens", MemfdFlags::CLOEXEC).expect("the system has files in memory"));
    }
    let tokens = FILE.with(|file| {
        file.set_len(0).and_then(|()| file.write_all_at(data, 0)).expect("there is memory");
        Tokens::new(&PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())), false)
    });
    let loaded = tokens.load().map(|_| ()).map_err(|error| error.to_string());
    let lines = data
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .zip(1..)
        .filter(|(line, _)| !line.is_empty() && line[0] != b'#');
    let lines: Vec<Line<'_>> = lines.map(|(line, number)| Line::new(line, number)).collect();
    let is_token =
        |text: &[u8]| lines.iter().any(|line| line.mistake().is_none() && line.token == text);
    let passes = |token: &[u8]| tokens.check(Some(&bearer(token))).is_ok();
    let bad = lines.iter().find_map(|line| line.mistake().map(|reason| (line, reason)));
    let bad = bad.or_else(|| {
        lines.iter().find(|line| line.name.is_some_and(is_token)).map(|line| (line, NAME))
    });
    if let Some((line, reason)) = bad {
        assert_eq!(loaded, Err(format!("line {}: {reason}", line.number)));
        return assert!(lines.iter().all(|line| !passes(line.token)));
    }
    assert_eq!(loaded, if lines.is_empty() { Err("it has no token".to_owned()) } else { Ok(()) });
    for Line { token, .. } in &lines {
        assert!(passes(token));
        let first = lines.iter().find(|line| line.token == *token).and_then(|line| line.name);
        assert_eq!(tokens.name(Some(&bearer(token))).as_deref().map(str::as_bytes), first);
        for other in [&token[1..], &token[..token.len() - 1], &token.to_ascii_uppercase()] {
            assert_eq!(passes(other), is_token(other));
        }
    }
}

fn bearer(token: &[u8]) -> Credentials {
    Credentials([b"Bearer ", token].concat().into())
}

const NAME: &str =
    r#"a name has 1 to 64 letters, digits, "-", "." and "_", and must not be a token itself"#;

/// A line that is neither blank nor a comment.
struct Line<'a> {
    number: usize,
    name: Option<&'a [u8]>,
    token: &'a [u8],
}

impl<'a> Line<'a> {
    fn new(line: &'a [u8], number: usize) -> Self {
        let mut parts = line.splitn(2, u8::is_ascii_whitespace);
        match (parts.next(), parts.next()) {
            (name, Some(token)) => Self { number, name, token: token.trim_ascii() },
            _ => Self { number, name: None, token: line },
        }
    }

    /// What is wrong with the line itself.
    fn mistake(&self) -> Option<&'static str> {
        let is_name = |name: &[u8]| {
            name.len() <= 64
                && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte))
        };
        match self {
            _ if !is_b64token(self.token) => Some(
                r#"a token consists of letters, digits, "-", ".", "_", "~", "+", "/", and "=" at its end"#,
            ),
            _ if !(16..=512).contains(&self.token.len()) => {
                Some("a token has 16 to 512 characters")
            }
            _ => self.name.is_some_and(|name| !is_name(name)).then_some(NAME),
        }
    }
}

/// RFC 6750 §2.1.
fn is_b64token(line: &[u8]) -> bool {
    let Ok(line) = str::from_utf8(line) else { return false };
    let value = line.trim_end_matches('=');
    !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "-._~+/".contains(c))
}

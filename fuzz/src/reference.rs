//! A second reader of requests, to compare the service's own with: it sees all bytes of a
//! connection at once, takes them apart line by line, and is as plain as RFC 9112 and the limits of
//! docs/http.md allow. It says what is a request, not why something is none.

use std::net::Ipv6Addr;

/// The limits of a head.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
pub const FIELD_LINES_MAX: usize = 100;

#[derive(Debug)]
pub struct PlainRequest {
    pub method: String,
    pub target: String,
    /// Names in lower case, values without white space around them.
    pub fields: Vec<(String, Vec<u8>)>,
    pub content: Vec<u8>,
    pub keep_alive: bool,
}

/// What comes after the last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainEnd<'a> {
    /// Nothing, but perhaps empty lines.
    Clean,
    /// It does not matter: the last request asks for a close.
    Closed,
    /// Something that is refused or cut short: its bytes, and what follows them.
    Refused(&'a [u8]),
}

impl PlainRequest {
    /// The values of a field, one for each of its lines.
    pub fn values(&self, name: &str) -> Vec<&[u8]> {
        self.fields
            .iter()
            .filter(|(known, _)| known == name)
            .map(|(_, value)| value.as_slice())
            .collect()
    }

    /// Whether there is content, be it empty, behind the head.
    pub fn announces_content(&self) -> bool {
        let has_length = self
            .values("content-length")
            .iter()
            .any(|length| length.iter().any(|byte| *byte != b'0'));
        has_length || !self.values("transfer-encoding").is_empty()
    }

    fn members(&self, name: &str) -> Vec<String> {
        let values = self.values(name);
        let members = values.iter().flat_map(|value| value.split(|byte| *byte == b','));
        members
            .map(|member| String::from_utf8_lossy(member.trim_ascii()).to_ascii_lowercase())
            .collect()
    }
}

/// All requests of a connection up to the last that is answered.
pub fn requests(mut rest: &[u8], content_max: usize) -> (Vec<PlainRequest>, PlainEnd<'_>) {
    let mut requests = Vec::new();
    loop {
        for _ in 0..100 {
            rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
        }
        if rest.is_empty() {
            return (requests, PlainEnd::Clean);
        }
        let Some((request, after)) = request(rest, content_max) else {
            return (requests, PlainEnd::Refused(rest));
        };
        let keep_alive = request.keep_alive;
        requests.push(request);
        if !keep_alive {
            return (requests, PlainEnd::Closed);
        }
        rest = after;
    }
}

fn request(bytes: &[u8], content_max: usize) -> Option<(PlainRequest, &[u8])> {
    let end = 4 + bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, after) = bytes.split_at(end);
    let mut lines = Vec::new();
    let mut rest = &head[..end - 2];
    while !rest.is_empty() {
        let line;
        (line, rest) = split_line(rest)?;
        lines.push(line);
    }
    let (request_line, field_lines) = lines.split_first()?;
    if head.len() > HEAD_BYTES_MAX || field_lines.len() > FIELD_LINES_MAX {
        return None;
    }
    let [method, target, version] =
        request_line.split(|byte| *byte == b' ').collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let is_1_1 = match version {
        b"HTTP/1.0" => false,
        b"HTTP/1.1" => true,
        _ => return None,
    };
    let is_target = !target.is_empty()
        && str::from_utf8(target).is_ok()
        && target.iter().all(|byte| matches!(byte, b'!'..=b'~' | 0x80..) && *byte != b'#');
    if !is_token(method) || method.len() > 32 || !is_target {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = field_lines.iter().map(|line| field(line)).collect::<Option<Vec<_>>>()?;
    let mut request = PlainRequest {
        method: text(method),
        target: text(target),
        fields,
        content: Vec::new(),
        keep_alive: false,
    };
    check_fields(&request, is_1_1)?;
    let connection = request.members("connection");
    let has = |option: &str| connection.iter().any(|member| member == option);
    request.keep_alive = !has("close") && (is_1_1 || has("keep-alive"));
    let after =
        match (&request.values("content-length")[..], &request.members("transfer-encoding")[..]) {
            ([], []) => after,
            ([length], []) => {
                let is_number = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
                let length: usize = str::from_utf8(length)
                    .ok()
                    .filter(|_| is_number)?
                    .parse()
                    .ok()
                    .filter(|length| *length <= content_max)?;
                request.content = after.get(..length)?.to_vec();
                &after[length..]
            }
            ([], [coding]) if is_1_1 && coding == "chunked" => {
                let (content, used) = chunked(after, content_max)?;
                request.content = content;
                &after[used..]
            }
            _ => return None,
        };
    Some((request, after))
}

/// `None` when the fields are such that the request is refused.
fn check_fields(request: &PlainRequest, is_1_1: bool) -> Option<()> {
    let hosts = request.values("host");
    let may_host = match hosts[..] {
        [] => !is_1_1,
        // by a unix socket
        [b""] => true,
        [host] => is_host(host),
        _ => false,
    };
    let lower = request.target.to_ascii_lowercase();
    let authority =
        ["http://", "https://"].iter().find(|scheme| lower.starts_with(**scheme)).map(|scheme| {
            let rest = &request.target.as_bytes()[scheme.len()..];
            rest.split(|byte| matches!(byte, b'/' | b'?')).next().unwrap_or_default()
        });
    let may_expect = !is_1_1
        || request
            .members("expect")
            .iter()
            .all(|expectation| matches!(expectation.as_str(), "" | "100-continue"));
    (may_host && authority.is_none_or(is_host) && may_expect).then_some(())
}

fn field(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let is_value = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..));
    (is_token(name) && is_value)
        .then(|| (String::from_utf8_lossy(name).to_ascii_lowercase(), value.trim_ascii().to_vec()))
}

/// A line without its CR LF, and what follows it. `None` unless there is one, with no other CR or
/// LF in it.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = bytes[..end].strip_suffix(b"\r")?;
    (!line.contains(&b'\r')).then_some((line, &bytes[end + 1..]))
}

fn is_token(bytes: &[u8]) -> bool {
    let is_tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(is_tchar)
}

/// `host[:port]`.
fn is_host(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    let (name, port) = match host.rfind(':').filter(|colon| !host[*colon..].contains(']')) {
        Some(colon) => (&host[..colon], &host[colon + 1..]),
        None => (host, ""),
    };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(address) = name.strip_prefix('[') {
        return is_port
            && address
                .strip_suffix(']')
                .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    let mut bytes = name.bytes();
    let is_digit =
        |bytes: &mut std::str::Bytes<'_>| bytes.next().is_some_and(|byte| byte.is_ascii_hexdigit());
    while let Some(byte) = bytes.next() {
        let is_fine = match byte {
            b'%' => is_digit(&mut bytes) && is_digit(&mut bytes),
            _ => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte),
        };
        if !is_fine {
            return false;
        }
    }
    is_port && !name.is_empty()
}

/// Decodes chunked content: it, and how many bytes it took. `None` when it is refused or cut short.
pub fn chunked(bytes: &[u8], content_max: usize) -> Option<(Vec<u8>, usize)> {
    let (mut rest, mut content, mut skipped) = (bytes, Vec::new(), 0);
    let short_line = |rest| {
        let (line, rest) = split_line(rest)?;
        let is_fine = line.len() + 2 <= 1024
            && line.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t');
        is_fine.then_some((line, rest))
    };
    loop {
        let line;
        (line, rest) = short_line(rest)?;
        let (digits, extension) =
            line.split_at(line.iter().position(|byte| *byte == b';').unwrap_or(line.len()));
        let digits =
            str::from_utf8(if extension.is_empty() { digits } else { digits.trim_ascii_end() })
                .ok()?;
        // Leading zeros that no size of 64 bits needs count as well.
        skipped += extension.len() + (line.len() - extension.len()).saturating_sub(16);
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) || skipped > 16 * 1024 {
            return None;
        }
        let size = usize::from_str_radix(digits, 16).ok()?;
        if size == 0 {
            break;
        }
        if size > content_max - content.len() {
            return None;
        }
        content.extend_from_slice(rest.get(..size)?);
        rest = rest[size..].strip_prefix(b"\r\n")?;
    }
    loop {
        let line;
        (line, rest) = short_line(rest)?;
        skipped += line.len();
        if line.is_empty() {
            return Some((content, bytes.len() - rest.len()));
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        if !is_token(&line[..colon]) || skipped > 16 * 1024 {
            return None;
        }
    }
}

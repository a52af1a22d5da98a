//! Parses the values of options. An error says which forms a value may have. Looks up no name, and
//! opens nothing.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ureq::http::Uri;
use ureq::http::uri::Authority;

use bounded_http::syntax::is_host;

/// Longest path of a unix socket: `sun_path` has 108 bytes with the NUL at the end (unix(7)).
const UNIX_PATH_BYTES_MAX: usize = 107;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// This port of 127.0.0.1 and, where there is IPv6, of `::1`: some clients try only one of the
    /// two. A socket listens on one of them, so its endpoint is not this. Port 0 as below.
    Localhost(u16),
    /// With port 0, the kernel picks a port.
    Tcp(SocketAddr),
    /// The path of a unix socket's file. That of an inherited socket may be an abstract name after
    /// an @ (unix(7)), or empty.
    Unix(PathBuf),
}

impl Endpoint {
    /// Whether this is a loopback TCP address, which web pages can reach by DNS rebinding.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Localhost(_) => true,
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => false,
        }
    }

    /// Whether this is a TCP address that other hosts may reach.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Tcp(_)) && !self.is_loopback()
    }
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORMS: &str = "give a port, an address and a port, or the path of a unix socket of \
                             at most 107 bytes: 8080, 127.0.0.1:8080, 0.0.0.0:8080 for all \
                             addresses, [::1]:8080, or unix:/run/colors/colors.sock";
        if let Some(path) = text.strip_prefix("unix:") {
            let fits = (1..=UNIX_PATH_BYTES_MAX).contains(&path.len());
            return if fits { Ok(Self::Unix(path.into())) } else { Err(FORMS) };
        }
        let port = text.strip_prefix("localhost:").unwrap_or(text);
        match port.parse() {
            Ok(number) if !port.starts_with('+') => Ok(Self::Localhost(number)),
            _ => text.parse().map(Self::Tcp).map_err(|_| FORMS),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Localhost(port) => write!(f, "http://localhost:{port}"),
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Where the list is kept: `--data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DataPlace {
    File(PathBuf),
    Etcd(EtcdPlace),
}

/// A key in etcd: `etcd://HOST:PORT,.../KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdPlace {
    /// HOST:PORT of each member that is asked.
    pub(crate) members: Vec<String>,
    pub(crate) key: String,
}

impl EtcdPlace {
    /// A member on another host, where a password would go in clear.
    pub(super) fn elsewhere(&self) -> Option<&String> {
        let is_here = |member: &&String| member.parse().is_ok_and(|it: Endpoint| it.is_loopback());
        self.members.iter().find(|member| !is_here(member))
    }
}

impl DataPlace {
    /// Whatever begins neither as a URL nor with `etcd:` is a file.
    pub(super) fn parse(path: PathBuf) -> Result<Self, &'static str> {
        const FORM: &str = "give the members of etcd, without TLS, and a key, as in \
                            etcd://127.0.0.1:2379/colors or \
                            etcd://10.0.0.1,10.0.0.2:2379/colors (port 2379 if left out), or write \
                            a file of such a name with ./ before it";
        let text = path.to_string_lossy();
        let is_file = text.split_once(':').is_none_or(|(scheme, rest)| {
            let scheme = scheme.to_ascii_lowercase();
            scheme != "etcd" && !(is_scheme(&scheme) && rest.starts_with("//"))
        });
        if is_file {
            return Ok(Self::File(path));
        }
        let place = text.strip_prefix("etcd://");
        let (members, key) = place.and_then(|place| place.split_once('/')).ok_or(FORM)?;
        let members = members.split(',').map(parse_member).collect::<Option<_>>().ok_or(FORM)?;
        let is_key = |c: char| c.is_ascii_graphic() && !"?#".contains(c);
        let is_valid = key.chars().all(is_key) && key.split('/').all(|part| !part.is_empty());
        let place = EtcdPlace { members, key: key.to_owned() };
        is_valid.then_some(Self::Etcd(place)).ok_or(FORM)
    }
}

impl fmt::Display for EtcdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}/{}", self.members.join(","), self.key)
    }
}

/// Parses a member of etcd, which is a host, perhaps with a port.
fn parse_member(text: &str) -> Option<String> {
    let authority = text.parse().ok().filter(|_| is_host(text))?;
    with_port(&authority, 2379)
}

/// Gives host and port. `None` if the port is none.
fn with_port(authority: &Authority, default: u16) -> Option<String> {
    match authority.port_u16() {
        Some(port) if port > 0 => Some(authority.to_string()),
        None if authority.as_str() == authority.host() => Some(format!("{authority}:{default}")),
        _ => None,
    }
}

/// The service that `--health` asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceAddress {
    /// The path of its socket.
    Unix(PathBuf),
    /// Host and port, and the base path without a slash at its end.
    Http(String, String),
}

impl ServiceAddress {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(Endpoint::Unix(path)) = text.parse() {
            return Ok(Self::Unix(path));
        }
        let (authority, base) = parse_service(text)
            .map_err(|error| format!("{error}, or unix: and the path of its socket"))?;
        Ok(Self::Http(authority, base))
    }
}

impl fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Http(authority, base) => write!(f, "http://{authority}{base}"),
        }
    }
}

/// The path that all resources sit below: empty, or `/` and segments without a trailing slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BasePath(String);

impl BasePath {
    /// Parses the path of `--base-path`: `/api`, `/api/`, `/a/b`; `/` and the empty string mean
    /// none. Its characters are the unreserved ones of RFC 3986 §2.3.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let path = text.strip_suffix('/').unwrap_or(text);
        if !path.is_empty() && !path.starts_with('/') {
            return Err("a base path starts with \"/\", as in \"/api\"".to_owned());
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        // Clients remove dot segments (URL standard).
        let is_segment =
            |segment: &str| !matches!(segment, "" | "." | "..") && segment.chars().all(plain);
        if !path.split('/').skip(1).all(is_segment) {
            return Err(
                "a base path consists of segments of letters, digits, \"-\", \".\", \"_\" and \
                        \"~\", none of them \".\" or \"..\", as in \"/api/v1\""
                    .to_owned(),
            );
        }
        Ok(Self(path.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Parses an origin of `--allow-origin`: scheme, `://`, host and port, spelled as browsers do. They
/// leave out the default port, and write http and https in lower case (RFC 6454 §6.2). Pages of
/// programs have schemes of their own, and hosts that no browser changes.
pub(super) fn parse_origin(text: &str) -> Result<String, String> {
    if text.contains('*') {
        return Err("there is no wildcard: give each origin, as in https://example.org".to_owned());
    }
    let is_lower_case = || !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let is_valid = match text.split_once("://") {
        Some(("http", host)) => !host.ends_with(":80") && is_lower_case() && is_host(host),
        Some(("https", host)) => !host.ends_with(":443") && is_lower_case() && is_host(host),
        Some((scheme, host)) => is_scheme(scheme) && is_host(host),
        None => false,
    };
    let fix = "give scheme, host and, unless it is the scheme's own, port, as a browser does: \
               lower case and without a path, as in https://example.org or tauri://localhost";
    is_valid.then(|| text.to_owned()).ok_or_else(|| fix.to_owned())
}

/// Whether this is a scheme (RFC 3986 §3.1) in lower case.
fn is_scheme(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_allowed)
}

/// Parses a host name of `--allow-host`: letters, digits, `-`, `.` and `_`; no port, no path.
pub(super) fn parse_host(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_valid = !text.is_empty() && text.chars().all(is_allowed);
    let fix = "give a host name alone, as in colors.example.org";
    is_valid.then(|| text.to_owned()).ok_or_else(|| fix.to_owned())
}

/// Parses the URL of `--follow`. Returns it without slashes at its end.
pub(super) fn parse_url(text: &str) -> Result<String, &'static str> {
    parse_service(text).map(|_| text.trim_end_matches('/').to_owned())
}

/// Parses the URL of a service: `http://HOST`, perhaps with a port and the base path there. Returns
/// host and port, and the base path without slashes at its end.
fn parse_service(text: &str) -> Result<(String, String), &'static str> {
    const FORM: &str = "give the URL of a service, without user, query and fragment, as in \
                        http://colors.example.org:8080";
    const TLS: &str = "a service speaks no TLS: give the http:// URL of a tunnel or proxy on this \
                       host that does (docs/replicas.md)";
    let uri: Uri = text.parse().map_err(|_| FORM)?;
    let authority = uri.authority().ok_or(FORM)?;
    let is_plain = !text.contains(['@', '?', '#']) && !authority.host().is_empty();
    match (uri.scheme_str(), with_port(authority, 80)) {
        (Some("https"), _) => Err(TLS),
        (Some("http"), Some(authority)) if is_plain => {
            Ok((authority, uri.path().trim_end_matches('/').to_owned()))
        }
        _ => Err(FORM),
    }
}

pub(super) fn parse_workers(text: &str) -> Result<usize, &'static str> {
    let workers = text.parse().ok().filter(|workers| (1..=256).contains(workers));
    workers.ok_or("give a number from 1 to 256")
}

/// Parses a size from 64 bytes to 16 MiB. K and M, in any case, stand for KiB and MiB.
pub(super) fn parse_size(text: &str) -> Result<usize, &'static str> {
    let (number, unit) = split_unit(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" | "kib" => Some(1024),
        "m" | "mib" => Some(1024 * 1024),
        _ => None,
    };
    let bytes = || number.parse::<usize>().ok()?.checked_mul(factor?);
    let bytes = bytes().filter(|bytes| (64..=16 * 1024 * 1024).contains(bytes));
    bytes.ok_or("give a size from 64 bytes to 16 MiB, as in 65536, 64K or 1MiB")
}

/// Parses a time from 100 ms to a day, in seconds if there is no unit.
pub(super) fn parse_time(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = split_unit(text);
    let factor = match unit {
        "ms" => Some(0.001),
        "" | "s" => Some(1.0),
        "m" | "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let seconds = || Some(number.parse::<f64>().ok()? * factor?);
    let seconds = seconds().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    let time = seconds.map(Duration::from_secs_f64);
    time.ok_or("give a time from 100ms to 24h, as in 30, 30s, 500ms or 2m")
}

/// Splits `64K` into `64` and `K`.
fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

/// Parses the permissions of a file, from 0 to 777 in octal.
pub(super) fn parse_mode(text: &str) -> Result<u32, &'static str> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| !text.starts_with('+'));
    mode.filter(|mode| *mode <= 0o777).ok_or("give an octal number from 0 to 777, as in 0660")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_with_a_port_or_a_path() {
        for text in ["127.0.0.1:8080", "[::1]:0", "0.0.0.0:80"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), format!("http://{text}"));
        }
        for text in ["unix:/run/colors.sock", "unix:a"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        let too_long = format!("unix:/{}", "x".repeat(107));
        for text in ["8080", "localhost:8080"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), "http://localhost:8080");
        }
        for text in [
            ":8080",
            "localhost:+80",
            "*:8080",
            "65536",
            "+80",
            "localhost",
            "example.org:80",
            "127.0.0.1",
            "127.0.0.1:99999",
            "",
            "unix:",
            &too_long,
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
        assert!(too_long[..too_long.len() - 1].parse::<Endpoint>().is_ok());
    }

    #[test]
    fn a_place_is_a_file_or_members_and_a_key() {
        let parse = |text: &str| DataPlace::parse(text.into());
        for (text, expected) in [
            ("etcd://127.0.0.1/a", "etcd://127.0.0.1:2379/a"),
            (
                "etcd://a.example.org:1,[::1]:65535,b/c/d",
                "etcd://a.example.org:1,[::1]:65535,b:2379/c/d",
            ),
        ] {
            let Ok(DataPlace::Etcd(place)) = parse(text) else { panic!("{text}") };
            assert_eq!(place.to_string(), expected);
        }
        for text in [
            "etcd:",
            "etcd:a",
            "ETCD://a/k",
            "Etcd:a",
            "etcds://a/k",
            "https://a/k",
            "http://a:2379/k",
            "unix:///a",
            "sqlite://a",
            "etcd://",
            "etcd:///k",
            "etcd://a",
            "etcd://a/",
            "etcd://a//k",
            "etcd://a/k/",
            "etcd://a:0/k",
            "etcd://a:65536/k",
            "etcd://a:/k",
            "etcd://a:b/k",
            "etcd://a,/k",
            "etcd://a, b/k",
            "etcd://a b/k",
            "etcd://a/k k",
            "etcd://u:p@a/k",
            "etcd://a/k?x",
            "etcd://a/k#x",
        ] {
            assert!(
                parse(text).is_err_and(|error| error.contains("etcd://127.0.0.1:2379/colors")),
                "{text}"
            );
        }
        for text in ["./etcd:a", "./etcds://a/k", "c:/colors.db", "a:b", "1://a"] {
            assert_eq!(parse(text), Ok(DataPlace::File(text.into())));
        }
    }

    #[test]
    fn only_loopback_addresses_are_loopback() {
        for (text, expected) in [
            ("localhost:1", true),
            ("127.0.0.2:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("unix:/127.0.0.1:1", false),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().is_loopback(), expected, "{text}");
        }
    }

    #[test]
    fn a_base_path_is_plain_segments() {
        for (text, expected) in
            [("", ""), ("/", ""), ("/api", "/api"), ("/api/", "/api"), ("/a/b", "/a/b")]
        {
            assert_eq!(
                BasePath::parse(text).as_ref().map(BasePath::as_str),
                Ok(expected),
                "{text:?}"
            );
        }
        for text in ["api", "//", "/a//b", "/a b", "/a%20b", "/\u{e9}", "/a?b", "/..", "/a/./b"] {
            assert!(BasePath::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_origin_and_a_host_are_only_what_could_match() {
        for good in [
            "https://example.org",
            "http://localhost:3000",
            "http://[::1]:81",
            "http://[::1]",
            "https://a.:80",
            "tauri://localhost",
            "capacitor://localhost",
            "app://obsidian.md",
            "chrome-extension://aapocclcgogkmnckokdopfmhonfmgoek",
            "ms-appx-web://Example:80",
        ] {
            assert_eq!(parse_origin(good).as_deref(), Ok(good));
        }
        for bad in [
            "example.org",
            "https://example.org/",
            "https://Example.org",
            "https://",
            "*",
            "null",
            "https://a b",
            "https://:",
            "https://a:443",
            "http://[::1]:80",
            "https://[A::]",
            "https://*.example.org",
            "tauri://*",
            "file://",
            "://localhost",
            "Tauri://localhost",
            "1a://localhost",
            "tauri://localhost/",
            "tauri:localhost",
        ] {
            assert!(parse_origin(bad).is_err(), "{bad:?}");
        }
        assert_eq!(parse_host("colors.example.org").as_deref(), Ok("colors.example.org"));
        for bad in ["", "a:80", "http://a", "a/b", "*"] {
            assert!(parse_host(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_url_names_a_host_and_perhaps_a_port_and_a_path() {
        for (text, expected) in [
            ("http://a", "http://a"),
            ("http://a:80/", "http://a:80"),
            ("http://[::1]:8080/api/v1/", "http://[::1]:8080/api/v1"),
            ("http://10.0.0.1:8080", "http://10.0.0.1:8080"),
        ] {
            assert_eq!(parse_url(text).as_deref(), Ok(expected));
        }
        for text in [
            "",
            "a",
            "a:8080",
            "/a",
            "http://",
            "http:///a",
            "http://:80",
            "ftp://a",
            "http://a b",
            "http://a:",
            "http://a:x",
            "http://a:65536",
            "http://a:0",
            "http://u:p@a",
            "http://a?b",
            "http://a#b",
            "unix:/run/s",
        ] {
            assert!(
                parse_url(text).is_err_and(|error| error.starts_with("give the URL")),
                "{text}"
            );
        }
        for text in ["https://a", "https://a:8443/api"] {
            assert!(parse_url(text).is_err_and(|error| error.contains("TLS")), "{text}");
        }
    }

    #[test]
    fn a_service_is_a_url_or_a_socket() {
        let parse = |text| ServiceAddress::parse(text).map(|address| address.to_string());
        for (text, expected) in [
            ("http://a", "http://a:80"),
            ("HTTP://[::1]:8080/api/", "http://[::1]:8080/api"),
            ("unix:/run/s", "unix:/run/s"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected));
        }
        let fix = "http://colors.example.org:8080, or unix: and the path of its socket";
        assert!(parse("a:8080").is_err_and(|error| error.ends_with(fix)));
    }

    #[test]
    fn times_are_within_a_day() {
        for (text, milliseconds) in [
            ("5", 5000),
            ("0.25", 250),
            ("30s", 30_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["0", "-1", "NaN", "inf", "86401", "5 s", "s", "99ms", "1d", ""] {
            let fix = "give a time from 100ms to 24h, as in 30, 30s, 500ms or 2m";
            assert_eq!(parse_time(text), Err(fix), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_from_64_bytes_to_16_mib() {
        for (text, bytes) in [
            ("64", 64),
            ("64B", 64),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("16MiB", 16_777_216),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "63",
            "16777217",
            "17M",
            "1G",
            "1.5K",
            "-64",
            "K",
            "64 K",
            "64KB",
            "99999999999999999999",
            "",
        ] {
            let fix = "give a size from 64 bytes to 16 MiB, as in 65536, 64K or 1MiB";
            assert_eq!(parse_size(text), Err(fix), "{text:?}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("0660"), Ok(0o660));
        assert_eq!(parse_mode("7"), Ok(0o7));
        for text in ["1000", "8", "+7", "-1", "rw", ""] {
            let fix = "give an octal number from 0 to 777, as in 0660";
            assert_eq!(parse_mode(text), Err(fix), "{text:?}");
        }
    }
}

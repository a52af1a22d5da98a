//! Tokens: reads them from their file, and checks the credentials of a request (RFC 6750). Does not
//! decide which requests need a token. Logs no token.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::http::{Challenge, Credentials};
use crate::secret_file;

/// Fewest and most characters of a token. 16 random ones of base64 are 96 bits, which are too many
/// to guess. 512 fit the limits that proxies have for a field.
const TOKEN_CHARACTERS: RangeInclusive<usize> = 16..=512;
const TOKEN_LENGTH: &str = "a token has 16 to 512 characters";

/// The rule `b64token` (RFC 6750 §2.1).
const TOKEN_SYNTAX: &str =
    r#"a token consists of letters, digits, "-", ".", "_", "~", "+", "/", and "=" at its end"#;

/// Most characters of a token's name.
const NAME_CHARACTERS_MAX: usize = 64;
const NAME_SYNTAX: &str = r#"a name has 1 to 64 letters, digits, "-", "." and "_""#;

/// The tokens of a file. A client that has one may change the list, and read what `--private`
/// protects.
pub(crate) struct Tokens {
    file: PathBuf,
    accepted: RwLock<Vec<Accepted>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Accepted {
    hash: blake3::Hash,
    /// The token's name, for the log.
    name: Option<Arc<str>>,
}

impl Tokens {
    /// Without tokens until [`Tokens::load`] reads the file.
    pub(crate) fn new(file: &Path) -> Self {
        Self { file: file.to_owned(), accepted: RwLock::default() }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the file and replaces all tokens by those in it. Fails, and leaves the tokens as they
    /// are, if the file cannot be read, has no token or has a malformed line.
    pub(crate) fn load(&self) -> io::Result<()> {
        let content = secret_file::read(&self.file)?;
        let tokens = parse(&content).map_err(io::Error::other)?;
        let accepted = tokens.into_iter().map(accept).collect();
        *self.accepted.write().unwrap_or_else(PoisonError::into_inner) = accepted;
        Ok(())
    }

    /// Logs how many tokens there are, and warns if others can read them.
    pub(crate) fn log(&self) {
        let count = self.accepted.read().unwrap_or_else(PoisonError::into_inner).len();
        let plural = if count == 1 { "" } else { "s" };
        log::info!("{count} token{plural} loaded from {}", self.file.display());
        secret_file::warn_if_open("token file", &self.file);
    }

    /// Fails with the challenge for a request without a valid token.
    pub(super) fn check(&self, credentials: Option<&Credentials>) -> Result<(), Challenge> {
        match credentials {
            Some(Credentials::Bearer(hash)) => {
                self.find(hash).map(drop).ok_or(Challenge::InvalidToken)
            }
            Some(Credentials::SeveralWords) => Err(Challenge::SeveralWords),
            Some(Credentials::Other) | None => Err(Challenge::NoToken),
        }
    }

    /// The name of a request's token, if it is valid and has a name.
    pub(super) fn name(&self, credentials: Option<&Credentials>) -> Option<Arc<str>> {
        let Some(Credentials::Bearer(hash)) = credentials else { return None };
        self.find(hash)?.name
    }

    /// The accepted token with this hash. blake3 compares hashes in constant time: how long it
    /// takes tells nothing of how much of a token is right.
    fn find(&self, hash: &blake3::Hash) -> Option<Accepted> {
        let accepted = self.accepted.read().unwrap_or_else(PoisonError::into_inner);
        accepted.iter().find(|accepted| accepted.hash == *hash).cloned()
    }
}

/// The only token of a file, without its name. Fails if the file has none or several.
pub(crate) fn only_token(file: &Path) -> io::Result<String> {
    let content = secret_file::read(file)?;
    match parse(&content).map_err(io::Error::other)?[..] {
        [(_, token)] => Ok(token.to_owned()),
        _ => Err(io::Error::other("it has more than one token")),
    }
}

fn accept((name, token): (Option<&str>, &str)) -> Accepted {
    Accepted { hash: blake3::hash(token.as_bytes()), name: name.map(Arc::from) }
}

/// The tokens of a file, each behind its name: one per line, with or without a name before it. A
/// line that begins with `#` is a comment. An error has the number of the line, but not its text,
/// which may be most of a token.
fn parse(content: &str) -> Result<Vec<(Option<&str>, &str)>, String> {
    let lines = content.lines().map(str::trim_ascii).zip(1..);
    let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let parse = |(line, number)| parse_line(line).map_err(|rule| format!("line {number}: {rule}"));
    let tokens = lines.map(parse).collect::<Result<Vec<_>, _>>()?;
    if tokens.is_empty() { Err("it has no token".to_owned()) } else { Ok(tokens) }
}

/// A line's name and token, or the rule that it breaks.
fn parse_line(line: &str) -> Result<(Option<&str>, &str), &'static str> {
    let (name, token) = match line.split_once(|c: char| c.is_ascii_whitespace()) {
        Some((name, token)) => (Some(name), token.trim_ascii_start()),
        None => (None, line),
    };
    let is_token_character = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    let unpadded = token.trim_end_matches('=');
    if unpadded.is_empty() || !unpadded.bytes().all(is_token_character) {
        return Err(TOKEN_SYNTAX);
    }
    if !TOKEN_CHARACTERS.contains(&token.len()) {
        return Err(TOKEN_LENGTH);
    }
    let is_name_character = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name =
        |name: &str| name.len() <= NAME_CHARACTERS_MAX && name.bytes().all(is_name_character);
    if !name.is_none_or(is_name) {
        return Err(NAME_SYNTAX);
    }
    Ok((name, token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(content: &str) -> Result<Vec<Accepted>, String> {
        parse(content).map(|tokens| tokens.into_iter().map(accept).collect())
    }

    fn named(name: &str, token: &str) -> Accepted {
        Accepted { name: Some(name.into()), hash: blake3::hash(token.as_bytes()) }
    }

    fn nameless(tokens: &[&str]) -> Vec<Accepted> {
        tokens
            .iter()
            .map(|token| Accepted { name: None, hash: blake3::hash(token.as_bytes()) })
            .collect()
    }

    #[test]
    fn a_file_has_a_token_per_line_and_comments() {
        let longest = "x".repeat(512);
        for (content, expected) in [
            ("abcdefgh01234567", vec!["abcdefgh01234567"]),
            (
                "# laptop\nabcdefgh01234567\n\n  # phone\n\tAZ-._~+/01234567==  \r\n",
                vec!["abcdefgh01234567", "AZ-._~+/01234567=="],
            ),
            (&longest, vec![&longest]),
        ] {
            assert_eq!(parsed(content).unwrap(), nameless(&expected), "{content:?}");
        }
    }

    #[test]
    fn a_token_may_have_a_name_before_it() {
        let longest = "n".repeat(64);
        let content =
            format!("a.B-_9 \t abcdefgh01234567\r\n{longest} AZ-._~+/01234567==\nabcdefgh01234568");
        let mut expected =
            vec![named("a.B-_9", "abcdefgh01234567"), named(&longest, "AZ-._~+/01234567==")];
        expected.extend(nameless(&["abcdefgh01234568"]));
        assert_eq!(parsed(&content).unwrap(), expected);
        let tokens = Tokens::new(Path::new("tokens"));
        *tokens.accepted.write().unwrap() = expected;
        for (authorization, name) in [
            ("Bearer abcdefgh01234567", Some("a.B-_9")),
            ("Bearer abcdefgh01234568", None),
            ("Bearer abcdefgh01234569", None),
            ("Bearer a.B-_9", None),
        ] {
            assert_eq!(
                tokens.name(Some(&Credentials::parse(authorization.as_bytes()))).as_deref(),
                name,
                "{authorization}"
            );
        }
    }

    #[test]
    fn any_file_has_the_tokens_of_its_lines_in_their_order() {
        let (token, long) = ("abcdefgh01234567", "x".repeat(512));
        let long_line = format!("a.B-_9\t{long}");
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2_000 {
            let (mut content, mut expected) = (token.to_owned(), nameless(&[token]));
            for _ in 0..random.usize(..5) {
                let lines =
                    [("", None), ("#a b", None), (token, None), (&*long_line, Some("a.B-_9"))];
                let (line, name) = *random.choice(&lines).unwrap();
                let space = *random.choice(&["", " ", "\r", "\t "]).unwrap();
                content += &format!("{space}\n{space}{line}");
                expected.extend(name.map(|name| named(name, &long)));
                expected.extend((line == token).then(|| nameless(&[token]).remove(0)));
            }
            assert_eq!(parsed(&content), Ok(expected), "{content:?}");
            let bad = content.matches('\n').count() + 2;
            assert!(parsed(&(content + "\n!")).unwrap_err().starts_with(&format!("line {bad}: ")));
        }
    }

    #[test]
    fn a_bad_line_is_named_with_the_reason_and_never_shown() {
        let length = "a token has 16 to 512 characters";
        let name = "a name has 1 to 64 letters, digits, \"-\", \".\" and \"_\"";
        let character = "a token consists of letters, digits, \"-\", \".\", \"_\", \"~\", \"+\", \
                         \"/\", and \"=\" at its end";
        for (content, expected) in [
            ("", "it has no token".to_owned()),
            ("# none\n\n", "it has no token".to_owned()),
            ("abcdefgh0123456", format!("line 1: {length}")),
            ("abcdefgh01234567\n#\nshort", format!("line 3: {length}")),
            (&"x".repeat(513), format!("line 1: {length}")),
            ("\nabcdefgh 01234567", format!("line 2: {length}")),
            ("abcdefgh01234567 # laptop", format!("line 1: {character}")),
            ("abcdefgh01234567 laptop", format!("line 1: {length}")),
            ("lap+top abcdefgh01234567", format!("line 1: {name}")),
            ("läptop abcdefgh01234567", format!("line 1: {name}")),
            (&format!("{} abcdefgh01234567", "n".repeat(65)), format!("line 1: {name}")),
            ("my laptop abcdefgh01234567", format!("line 1: {character}")),
            ("abcdefgh=01234567", format!("line 1: {character}")),
            ("================", format!("line 1: {character}")),
            ("abcdefgh01234567ä", format!("line 1: {character}")),
        ] {
            assert_eq!(parsed(content), Err(expected), "{content:?}");
        }
        let error = parse(&String::from_utf8_lossy(b"abcdefgh01234567\xff")).unwrap_err();
        assert_eq!(error, format!("line 1: {character}"));
    }

    fn tokens(accepted: &[&str]) -> Tokens {
        let tokens = Tokens::new(Path::new("tokens"));
        *tokens.accepted.write().unwrap() = nameless(accepted);
        tokens
    }

    #[test]
    fn only_a_whole_token_of_the_scheme_bearer_passes() {
        let tokens = tokens(&["abcdefgh01234567", "AZ-._~+/01234567==", "abcdefgh01234568"]);
        for (authorization, expected) in [
            (Some("Bearer abcdefgh01234567"), Ok(())),
            (Some("bEARER   AZ-._~+/01234567=="), Ok(())),
            (Some("Bearer abcdefgh01234568"), Ok(())),
            (None, Err(Challenge::NoToken)),
            (Some(""), Err(Challenge::NoToken)),
            (Some("Bearer"), Err(Challenge::NoToken)),
            (Some("Bearer  "), Err(Challenge::NoToken)),
            (Some("Basic abcdefgh01234567"), Err(Challenge::NoToken)),
            (Some("Bearerabcdefgh01234567"), Err(Challenge::NoToken)),
            (Some("abcdefgh01234567"), Err(Challenge::NoToken)),
            (Some("Bearer abcdefgh0123456"), Err(Challenge::InvalidToken)),
            (Some("Bearer abcdefgh012345678"), Err(Challenge::InvalidToken)),
            (Some("Bearer ABCDEFGH01234567"), Err(Challenge::InvalidToken)),
            (Some("Bearer AZ-._~+/01234567"), Err(Challenge::InvalidToken)),
            (
                Some("Bearer abcdefgh01234567, Bearer abcdefgh01234567"),
                Err(Challenge::SeveralWords),
            ),
            (Some("Bearer laptop abcdefgh01234567"), Err(Challenge::SeveralWords)),
            (Some("Bearer \tlaptop\tabcdefgh01234567 "), Err(Challenge::SeveralWords)),
            (Some("Bearer x"), Err(Challenge::InvalidToken)),
        ] {
            let credentials = authorization.map(|value| Credentials::parse(value.as_bytes()));
            assert_eq!(tokens.check(credentials.as_ref()), expected, "{authorization:?}");
        }
    }
}

//! As whom etcd is asked: the user and the password of `--etcd-user-file`, and the token that etcd
//! gives for them (<https://etcd.io/docs/v3.4/op-guide/authentication>). Sends nothing, and logs
//! none of the three.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::EtcdError;
use super::error::CallFailure;
use crate::secret_file;

/// What etcd answers to a user and a password while it lets everybody in.
const AUTH_IS_OFF: &str = "authentication is not enabled";

pub(super) struct User {
    file: PathBuf,
    /// `None` until etcd wants one. The writer gets it, the watch uses it.
    token: Mutex<Option<String>>,
}

impl User {
    /// Fails if the file cannot be used, although etcd may never ask for a user.
    pub(super) fn new(file: &Path) -> Result<Self, EtcdError> {
        let user = Self { file: file.to_owned(), token: Mutex::default() };
        user.credentials().map(|_| user)
    }

    /// The request for a token. Reads the file each time: a new password needs no signal.
    fn credentials(&self) -> Result<String, EtcdError> {
        let parsed = secret_file::read(&self.file).and_then(|content| parse(&content));
        parsed.map_err(|error| EtcdError::Unavailable {
            cause: "the etcd user file cannot be used",
            details: format!("{}: {error}", self.file.display()),
            may_be_there: false,
        })
    }

    /// Whether etcd refuses a request for want of a token, or because the token has expired or is
    /// from before a change of users and roles. It has not done what was asked then.
    pub(super) fn lacks_token(reason: &str) -> bool {
        let texts = ["user name is empty", "invalid auth token", "revision of auth store is old"];
        texts.iter().any(|text| reason.contains(text))
    }

    /// Gets another token by this request to etcd.
    pub(super) fn renew(
        &self,
        request: impl FnOnce(&[u8]) -> Result<Vec<u8>, CallFailure>,
    ) -> Result<(), CallFailure> {
        // etcd 3.4 refuses also this request if it has the old one.
        self.set_token(None);
        match request(self.credentials().map_err(CallFailure::Final)?.as_bytes()) {
            Ok(answer) => {
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                self.set_token(answer["token"].as_str().map(str::to_owned));
                Ok(())
            }
            // Users were switched off. etcd 3.4 still refuses tokens, but not requests without one.
            Err(CallFailure::Final(EtcdError::Refused(reason))) if reason.contains(AUTH_IS_OFF) => {
                Ok(())
            }
            Err(CallFailure::MayBeDone(reason)) => Err(CallFailure::NotDone(reason)),
            Err(failure) => Err(failure),
        }
    }

    pub(super) fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_token(&self, token: Option<String>) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

/// Makes the request for a token of the content of a file. As for etcdctl, a name has no colon.
fn parse(content: &str) -> io::Result<String> {
    let line = content.trim_end_matches(['\r', '\n']);
    let parts = line.split_once(':').filter(|_| !line.contains('\n'));
    let form = || io::Error::other("it needs one line, USER:PASSWORD");
    let (name, password) = parts.filter(|(name, _)| !name.is_empty()).ok_or_else(form)?;
    Ok(json!({"name": name, "password": password}).to_string())
}

/// What to do about a refusal that has to do with users; nothing for others.
pub(super) fn advice(reason: &str) -> &'static str {
    match reason.trim_start_matches("etcdserver: ") {
        "user name is empty" => "; name a file with user and password by --etcd-user-file",
        "permission denied" => "; give a role of the user readwrite for what begins with KEY/",
        _ if reason.contains("invalid user ID") => "; correct the file of --etcd-user-file",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_is_not_done_if_there_is_no_token_for_it() {
        let file = std::env::temp_dir().join(super::super::format::random_id());
        std::fs::write(&file, "a:b").unwrap();
        let user = User::new(&file).unwrap();
        let failure = user.renew(|_| Err(CallFailure::MayBeDone("x".to_owned())));
        assert!(matches!(failure, Err(CallFailure::NotDone(_))));
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_file_has_one_line() {
        for content in ["a: b:c \r\n", "a: b:c "] {
            assert_eq!(parse(content).unwrap(), r#"{"name":"a","password":" b:c "}"#);
        }
        for content in ["a:b\nc:d\n", "a\n", ":b", ""] {
            let error = parse(content).unwrap_err().to_string();
            assert_eq!(error, "it needs one line, USER:PASSWORD", "{content:?}");
        }
    }
}

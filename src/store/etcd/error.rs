//! Why etcd cannot be used; and why one member has not given the answer that was asked for, and
//! whether it may have done what it was asked all the same.

use std::fmt;
use std::io::ErrorKind;

use serde::Deserialize;
use ureq::{Error, Timeout};

use super::user;
use crate::outbound;
use crate::store::engine::{Certainty, Scope, StorageError};

/// Why etcd cannot be used. `Display` is for the operator, and names etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EtcdError {
    /// When no member does what it is asked in time. `details`: what each member does, if that is
    /// the cause. `may_be_there`: a member may have done it, or may do it later, without an answer.
    Unavailable { cause: &'static str, details: String, may_be_there: bool },
    /// When etcd's database has reached its quota
    /// (<https://etcd.io/docs/v3.4/op-guide/maintenance>).
    NoSpace,
    /// When a request is longer than etcd takes.
    TooLong,
    /// When the revision that a read is for was compacted meanwhile.
    Compacted,
    /// When two of the members that are named have different lists. Has both.
    Disagree(String, String),
    /// When etcd refuses a request for another reason, which is here.
    Refused(String),
    /// When the list would be longer than a snapshot can be. Has that length in bytes.
    ListTooLong(usize),
    /// When there is no list at the key.
    Missing,
    /// When a key has the format of a later program.
    Newer,
    /// When a key does not have what the service puts there. Has the key.
    Malformed(String),
}

impl EtcdError {
    /// The answer to a commit is lost.
    pub(super) fn in_doubt(cause: &'static str) -> Self {
        Self::Unavailable { cause, details: String::new(), may_be_there: true }
    }

    /// The same of a transaction that no change depends on.
    pub(super) fn without_doubt(self) -> Self {
        match self {
            Self::Unavailable { cause, details, .. } => {
                Self::Unavailable { cause, details, may_be_there: false }
            }
            error => error,
        }
    }

    fn for_clients(&self) -> &'static str {
        match self {
            Self::Unavailable { cause, .. } => cause,
            Self::NoSpace => "etcd has no room",
            Self::TooLong | Self::Refused(_) => "etcd refuses it",
            Self::Compacted | Self::Disagree(..) => "etcd cannot be read",
            Self::ListTooLong(_) => "etcd takes no list of this length",
            Self::Missing => "etcd has no list",
            Self::Newer | Self::Malformed(_) => "what etcd has in place of the list cannot be used",
        }
    }
}

impl From<EtcdError> for StorageError {
    fn from(error: EtcdError) -> Self {
        let (certainty, scope) = match &error {
            EtcdError::Unavailable { may_be_there: true, .. } => {
                (Certainty::InDoubt, Scope::UntilAnswer)
            }
            EtcdError::Unavailable { .. } => (Certainty::NotAsked, Scope::UntilAnswer),
            // Another service may just have changed the list.
            _ => (Certainty::NotMade, Scope::Save),
        };
        Self { message: error.to_string(), for_clients: error.for_clients(), certainty, scope }
    }
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { cause, details, may_be_there } => {
                f.write_str(cause)?;
                if !details.is_empty() {
                    write!(f, ": {details}")?;
                }
                let doubt = "; the last change may be in the list";
                f.write_str(if *may_be_there { doubt } else { "" })
            }
            Self::NoSpace => f.write_str(
                "etcd has no room: compact and defragment it, raise --quota-backend-bytes if that \
                 is not enough, and then run etcdctl alarm disarm",
            ),
            Self::TooLong => f.write_str(
                "etcd takes no request of this length; start it with --max-request-bytes=1572864 \
                 or more",
            ),
            Self::Compacted => f.write_str("etcd forgets its log sooner than it can be read"),
            Self::Disagree(one, other) => write!(
                f,
                "{one} and {other} do not have the same list: name the members of one etcd alone"
            ),
            Self::Refused(reason) => {
                write!(f, "etcd refuses requests: {reason}{}", user::advice(reason))
            }
            Self::ListTooLong(bytes) => {
                write!(
                    f,
                    "etcd takes lists of at most some {bytes} bytes; start with a shorter one"
                )
            }
            Self::Missing => {
                f.write_str("etcd has no list there; a start of the service makes it from the seed")
            }
            Self::Newer => f.write_str(
                "a newer version of colors has saved the list in etcd; install that one, or name \
                 another key with --data",
            ),
            Self::Malformed(key) => write!(
                f,
                "{key} in etcd is not what colors puts there; delete what else was put below the \
                 key, or restore a backup of etcd"
            ),
        }
    }
}

/// The reason if a member knows no leader. It has refused the request before it proposed it to the
/// others.
pub(super) const NO_LEADER: &str = "has no leader";

/// What to do about a member that wants TLS.
const TLS_FIX: &str = "(the service speaks none: add a URL without it to --listen-client-urls \
                       of etcd, such as http://127.0.0.1:2379)";

/// What to do about a server that is not etcd's gateway.
const PORT_FIX: &str = "(another server may have this port)";

/// Why there is no answer of one member.
pub(super) enum CallFailure {
    /// The member has not done what it was asked, and will not.
    NotDone(String),
    /// It may have done it, or may do it later.
    MayBeDone(String),
    /// No member will do it, and this one has not done it. With [`EtcdError::NoSpace`] it may have
    /// done it, until the gateway has found out.
    Final(EtcdError),
}

impl CallFailure {
    pub(super) fn reason(self) -> String {
        match self {
            Self::NotDone(reason) | Self::MayBeDone(reason) => reason,
            Self::Final(error) => error.to_string(),
        }
    }
}

/// Why a request has no answer. Leaves out what differs each time, such as the text of a malformed
/// answer: the log gets a line for each reason that differs from the one before.
pub(super) fn classify(error: Error) -> CallFailure {
    let is_unknown = |error: &Error| match error {
        Error::HostNotFound => true,
        Error::Io(error) => outbound::is_unknown_name(error),
        _ => false,
    };
    match error {
        error if is_unknown(&error) => CallFailure::NotDone("is not known by its name".to_owned()),
        Error::Timeout(Timeout::Resolve) => {
            CallFailure::NotDone("is not found by its name in time".to_owned())
        }
        // The only such error is of the look-up of names.
        Error::Other(error) => CallFailure::NotDone(format!("is not looked up: {error}")),
        Error::TlsRequired => CallFailure::NotDone(format!("wants TLS {TLS_FIX}")),
        Error::Timeout(Timeout::Connect) => {
            CallFailure::NotDone("does not answer in time".to_owned())
        }
        Error::Io(error) => match error.kind() {
            ErrorKind::ConnectionRefused => {
                CallFailure::NotDone("refuses the connection".to_owned())
            }
            // An open connection says so only after minutes.
            ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
                CallFailure::NotDone("cannot be reached".to_owned())
            }
            outbound::UNANSWERED => CallFailure::MayBeDone(format!(
                "closes the connection without an answer, as a port with TLS does {TLS_FIX}"
            )),
            _ => CallFailure::MayBeDone("breaks the connection".to_owned()),
        },
        Error::Timeout(_) => CallFailure::MayBeDone("does not answer in time".to_owned()),
        error => {
            log::debug!("{error}");
            CallFailure::MayBeDone(format!("answers what etcd does not {PORT_FIX}"))
        }
    }
}

/// What an answer with an error says. The codes are those of gRPC. Those of etcd 3.4 have the
/// message twice, as `error` as well.
pub(super) fn refusal(status: u16, content: &[u8]) -> CallFailure {
    #[derive(Deserialize)]
    struct Refusal {
        message: String,
        code: u32,
    }
    let Ok(Refusal { message: error, code }) = serde_json::from_slice(content) else {
        return not_gateway(status, content);
    };
    match code {
        // RESOURCE_EXHAUSTED stands for three things.
        8 if error.contains("database space exceeded") => CallFailure::Final(EtcdError::NoSpace),
        8 if error.contains("larger than max") => CallFailure::Final(EtcdError::TooLong),
        8 => CallFailure::NotDone(format!("answers {error:?}")),
        3 if error.contains("too large") => CallFailure::Final(EtcdError::TooLong),
        _ if error.contains("learner") => CallFailure::NotDone(format!("answers {error:?}")),
        14 if error == "etcdserver: no leader" => CallFailure::NotDone(NO_LEADER.to_owned()),
        // OUT_OF_RANGE: the revision of a read was compacted meanwhile.
        11 => CallFailure::Final(EtcdError::Compacted),
        // CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE: it may have been done.
        1 | 2 | 4 | 13 | 14 => CallFailure::MayBeDone(format!("answers {error:?}")),
        _ => CallFailure::Final(EtcdError::Refused(error)),
    }
}

/// The failure for an answer that is not from etcd's gateway.
pub(super) fn not_gateway(status: u16, content: &[u8]) -> CallFailure {
    match (status, String::from_utf8_lossy(content)) {
        // Go's servers say "Client sent an HTTP request to an HTTPS server", and nginx the same.
        (400, text) if text.contains("HTTPS") => {
            CallFailure::NotDone(format!("wants TLS {TLS_FIX}"))
        }
        // etcd's own answer where it has no such resource
        (404, text) if text == "404 page not found\n" => CallFailure::NotDone(
            "has no JSON gateway at this port (give the one for clients, 2379 and not 2380, and \
             start etcd without --enable-grpc-gateway=false)"
                .to_owned(),
        ),
        (421, _) => CallFailure::NotDone(
            "takes no requests for this name (add it to --host-whitelist of etcd)".to_owned(),
        ),
        _ => CallFailure::MayBeDone(format!("answers {status} and what etcd does not {PORT_FIX}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_what_was_sent_may_be_done() {
        let looked_up = io::Error::other("failed to lookup address information: not known");
        for error in [
            Error::Io(looked_up),
            Error::Io(ErrorKind::ConnectionRefused.into()),
            Error::Io(ErrorKind::NetworkUnreachable.into()),
            Error::Io(ErrorKind::HostUnreachable.into()),
            Error::Timeout(Timeout::Resolve),
            Error::Timeout(Timeout::Connect),
            Error::TlsRequired,
            Error::Other("the system refuses a thread".into()),
        ] {
            let failure = classify(error);
            assert!(matches!(failure, CallFailure::NotDone(_)), "{}", failure.reason());
        }
        for kind in [ErrorKind::ConnectionReset, outbound::UNANSWERED] {
            let failure = classify(Error::Io(kind.into()));
            assert!(matches!(failure, CallFailure::MayBeDone(_)), "{}", failure.reason());
        }
    }

    #[test]
    fn only_what_is_certainly_no_gateway_has_done_nothing() {
        let https = "<title>400 The plain HTTP request was sent to HTTPS port</title>";
        let host = "etcd received your request, but the Host header was unrecognized.";
        for (status, content, reason) in [
            (400, "Client sent an HTTP request to an HTTPS server.\n", "wants TLS ("),
            (400, https, "wants TLS ("),
            (404, "404 page not found\n", "has no JSON gateway at this port ("),
            (421, host, "takes no requests for this name (add it to --host-whitelist of etcd)"),
        ] {
            let failure = refusal(status, content.as_bytes());
            assert!(matches!(&failure, CallFailure::NotDone(told) if told.starts_with(reason)));
        }
        for (status, content) in [
            (400, "<title>400 Bad Request</title>"),
            // of a proxy, perhaps after etcd has done it
            (404, "<title>404 Not Found</title>"),
            (502, ""),
            (200, "{}"),
        ] {
            let failure = refusal(status, content.as_bytes());
            let reason = format!("answers {status} and what etcd does not {PORT_FIX}");
            assert!(matches!(&failure, CallFailure::MayBeDone(told) if *told == reason));
        }
    }

    #[test]
    fn an_error_is_read_in_the_form_of_each_version() {
        let text = "etcdserver: mvcc: database space exceeded";
        for answer in [
            // 3.4.23
            format!(r#"{{"error":"{text}","message":"{text}","code":8}}"#),
            // 3.5.16 of Debian 13
            format!(r#"{{"code":8, "message":"{text}"}}"#),
            // 3.6
            format!(r#"{{"code":8,"message":"{text}","details":[]}}"#),
        ] {
            let failure = refusal(429, answer.as_bytes());
            assert!(matches!(failure, CallFailure::Final(EtcdError::NoSpace)), "{answer}");
        }
    }
}

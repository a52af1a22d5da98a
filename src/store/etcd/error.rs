//! Why etcd cannot be used. Each text names etcd.

use std::fmt;

use super::user;
use crate::store::engine::{Certainty, Scope, StorageError};

/// `Display` is for the operator.
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

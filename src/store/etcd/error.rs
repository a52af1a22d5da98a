//! Why etcd cannot be used. Each text names etcd.

use std::fmt;

use super::user;
use crate::store::StorageError;

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
    fn for_clients(&self) -> String {
        let text = match self {
            Self::Unavailable { cause, may_be_there: true, .. } => {
                return format!("{cause}, and the change may be in the list");
            }
            Self::Unavailable { cause, .. } => cause,
            Self::NoSpace => "etcd has no room",
            Self::TooLong | Self::Refused(_) => "etcd refuses it",
            Self::ListTooLong(_) => "etcd takes no list of this length",
            Self::Missing => "etcd has no list",
            Self::Newer | Self::Malformed(_) => "what etcd has in place of the list cannot be used",
        };
        text.to_owned()
    }
}

impl From<EtcdError> for StorageError {
    fn from(error: EtcdError) -> Self {
        Self {
            message: error.to_string(),
            for_clients: error.for_clients(),
            // Another service may just have changed the list.
            fails_all_changes: true,
        }
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

//! The failures that end the process, with messages that say what to do where a setting helps.

use std::fmt;
use std::io::{self, ErrorKind};

use crate::store::JsonError;
use crate::store::json::LineColumn;

/// Why the process cannot start or go on. The log gets this as one line, and the exit code is 1.
pub(crate) enum Failure {
    /// When the seed cannot be read.
    SeedUnreadable(String, io::Error),
    /// When the seed is not a list of colors in JSON.
    Malformed(String, JsonError),
    /// When the list cannot be read from where it is kept, or made there. Has that place.
    Storage(String, String),
    /// When a start needs the list of the service of `--follow`, which does not answer with one.
    CannotFollow(String, String),
    /// When the token file cannot be read, has a malformed line, or has no token.
    TokenFile(String, io::Error),
    /// When the system refuses to listen on an address or a socket file.
    Listen(String, io::Error),
    /// When the service that `--health` asks does not answer with 200.
    Unhealthy(String, String),
    /// When a socket that the service manager hands over cannot be used.
    Inherited(io::Error),
    /// When the answer of `--check` or `--dump` cannot be written to standard output.
    Output(io::Error),
    /// When the system refuses a thread.
    Thread,
    /// When the system refuses something else, such as enough descriptors.
    System(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SeedUnreadable(file, error) => {
                write!(f, "cannot read the seed {file}: {error}; name another with --seed")
            }
            Self::Malformed(file, JsonError { reason, place }) => match place {
                Some(LineColumn { line, column }) => write!(f, "{file}:{line}:{column}: {reason}"),
                None => write!(f, "{file}: {reason}"),
            },
            Self::Storage(place, reason) => write!(f, "cannot use {place}: {reason}"),
            Self::CannotFollow(url, reason) => write!(
                f,
                "cannot follow {url}: {reason}; a start that has no copy of its list in --data \
                 needs it"
            ),
            Self::TokenFile(file, error) if error.kind() == ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "cannot use the token file {file}: {error}; let this user read it, or under \
                     systemd have the unit say LoadCredential=tokens:{file} and \
                     Environment=COLORS_TOKEN_FILE=/run/credentials/%n/tokens, and \
                     /etc/default/colors nothing of it"
                )
            }
            Self::TokenFile(file, error) => write!(f, "cannot use the token file {file}: {error}"),
            Self::Listen(endpoint, error) => write!(
                f,
                "cannot listen on {endpoint}: {error}; choose another address, port or path with \
                 --listen"
            ),
            Self::Unhealthy(place, reason) => write!(f, "no healthy service at {place}: {reason}"),
            Self::Inherited(error) => write!(
                f,
                "cannot use the sockets that LISTEN_FDS hands over: {error}; fix the .socket unit, \
                 or unset LISTEN_FDS"
            ),
            Self::Output(error) => write!(f, "cannot write to standard output: {error}"),
            Self::Thread => f.write_str(
                "cannot go on: the system refuses a thread; raise the limit of processes \
                 (ulimit -u, TasksMax=)",
            ),
            Self::System(error) => write!(f, "cannot go on: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_of_somebody_else_leads_to_the_setting_of_the_unit() {
        let failure =
            Failure::TokenFile("/etc/colors/tokens".to_owned(), ErrorKind::PermissionDenied.into());
        assert_eq!(
            failure.to_string(),
            "cannot use the token file /etc/colors/tokens: permission denied; let this user read \
             it, or under systemd have the unit say LoadCredential=tokens:/etc/colors/tokens and \
             Environment=COLORS_TOKEN_FILE=/run/credentials/%n/tokens, and /etc/default/colors \
             nothing of it"
        );
    }
}

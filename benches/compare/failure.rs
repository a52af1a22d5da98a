//! Why a comparison cannot go on. Decides nothing about what happens then.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::kind::Kind;

/// Each is one sentence; the text of a program that failed may follow it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// When a file of the comparison cannot be written or read.
    File(PathBuf, io::Error),
    /// When a program that was found, or cargo, cannot be started.
    Start(PathBuf, io::Error),
    /// When a program, the first, ends with an error, and with these last words.
    Ended(PathBuf, String),
    /// When a program, the first, is not installed; the second is its Debian package.
    Missing(&'static str, &'static str),
    /// When a program, the first, prints what cannot be read as the second.
    Unreadable(&'static str, &'static str),
    /// When no port is free.
    NoPort(io::Error),
    /// When a server does not answer in time, or ends; its last words.
    Silent(Kind, String),
    /// When a connection to a server breaks.
    Connection(SocketAddr, io::Error),
    /// When a server answers with bytes that are not the HTTP this client knows; the sentence says what is wrong with them.
    Malformed(SocketAddr, &'static str),
    /// When a server answers a request, the second, with another status or content than it should.
    Wrong(Kind, String, u16),
    /// When a directory that has to be on a disk is on this kind of file system, which is in memory.
    NoDisk(PathBuf, String),
    /// When a server's CPU time cannot be read, as after its end.
    Clock(Errno),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Start(program, error) => write!(f, "cannot start {}: {error}", program.display()),
            Self::Ended(program, words) => write!(f, "{} failed: {words}", program.display()),
            Self::Missing(program, package) => write!(f, "{program} is not installed; on Debian: apt-get install {package}"),
            Self::Unreadable(program, what) => write!(f, "{program} printed no {what}"),
            Self::NoPort(error) => write!(f, "no port is free: {error}"),
            Self::Silent(kind, words) => write!(f, "{kind} does not answer; its last words: {words:?}"),
            Self::Connection(address, error) => write!(f, "connection to {address}: {error}"),
            Self::Malformed(address, what) => write!(f, "response from {address}: {what}"),
            Self::Wrong(kind, request, status) => write!(f, "{kind} answers {request} wrongly, with {status}"),
            Self::NoDisk(path, kind) => write!(f, "{} is on {kind}, which is no disk", path.display()),
            Self::Clock(error) => write!(f, "cannot read the CPU time of a server: {error}"),
        }
    }
}

//! The file of a unix socket: created with its mode, in place of a stale one, and removed at the
//! end. Knows nothing of connections.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};

/// A socket file that this process made; removed when dropped.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: another process may have replaced the file since.
    identity: (u64, u64),
}

impl SocketFile {
    /// Binds `socket` to a new file with this mode. Replaces the file of a process that ended
    /// without removing it; fails with `AddrInUse` when a process listens there.
    pub(super) fn bind(socket: &Socket, path: &Path, mode: u32) -> io::Result<Self> {
        let address = SockAddr::unix(path)?;
        // the file starts with the socket's own mode less the umask (bind_bsd in the kernel's
        // net/unix/af_unix.c), never with a wider one
        rustix::fs::fchmod(socket, Mode::from_raw_mode(mode))?;
        // where there is a file, bind fails
        remove_stale(path, &address)?;
        socket.bind(&address)?;
        let file = Self { path: path.to_owned(), identity: identity(path)? };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        Ok(file)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // A file that cannot be removed is replaced at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the file at the path, if there is one, and it is a socket on which nobody listens.
fn remove_stale(path: &Path, address: &SockAddr) -> io::Result<()> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(io::Error::other("there is a file that is no socket"));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // if the backlog is full, a blocking connect would wait
    probe.set_nonblocking(true)?;
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        // unix(7): EAGAIN is a full backlog, so a process listens
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

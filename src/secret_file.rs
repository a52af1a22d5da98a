//! Reads files that have secrets, and warns if others can.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Most bytes of such a file: more than 100 tokens of any length, with names.
const BYTES_MAX: u64 = 64 * 1024;

/// The content of a file.
pub(crate) fn read(file: &Path) -> io::Result<String> {
    // O_NONBLOCK, since opening a FIFO would wait for a process that writes to it.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(nonblocking).open(file)?;
    let mut content = Vec::new();
    if !opened.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    opened.take(BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > BYTES_MAX {
        return Err(io::Error::other("it has more than 64 KiB"));
    }
    Ok(String::from_utf8_lossy(&content).into_owned())
}

/// Warns if the mode of a file lets others use it. `what`: what the warning calls the file.
pub(crate) fn warn_if_open(what: &str, file: &Path) {
    let mode = file.metadata().map_or(0, |there| there.permissions().mode() & 0o777);
    if mode & 0o077 != 0 && !is_credential(file) {
        let file = file.display();
        log::warn!("others can use the {what} {file}, its mode is {mode:04o}; run chmod 600 on it");
    }
}

/// Whether the file is a credential from systemd (systemd.exec(5)). An access control list lets the
/// service's user read it. The mask of that list looks like permissions of the group (acl(5)), but
/// the directory keeps all other users out.
fn is_credential(file: &Path) -> bool {
    std::env::var_os("CREDENTIALS_DIRECTORY")
        .is_some_and(|directory| file.parent() == Some(Path::new(&directory)))
}

//! Tells files apart, whatever their paths.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// Device and inode number, which no other file has as long as this file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

//! Temporary files. Knows nothing of what they are for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::failure::Failure;
use crate::programs::HERE;

/// A directory that lives as long as this value.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A new directory, which every user may read: nginx started by root reads as another.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::below(&std::env::temp_dir())
    }

    /// A new directory below this crate's own, which lies on a disk where that for temporary files may lie in memory.
    pub(crate) fn on_disk() -> Result<Self, Failure> {
        let target = Path::new(HERE).join("target");
        fs::create_dir_all(&target).map_err(|error| Failure::File(target.clone(), error))?;
        Self::below(&target)
    }

    /// A new directory in this one.
    fn below(parent: &Path) -> Result<Self, Failure> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("colors-compare-{}-{number}", process::id()));
        let made = fs::create_dir(&path).and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
        made.map_err(|error| Failure::File(path.clone(), error))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        fs::write(&path, content).map_err(|error| Failure::File(path.clone(), error))?;
        Ok(path)
    }

    /// Makes a directory in it.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.0.join(name);
        fs::create_dir(&path).map_err(|error| Failure::File(path.clone(), error))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays: where the system clears temporary files away, or where `cargo clean` does.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The end of a file of text, for an error; empty when there is none.
pub(crate) fn last_words(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    tail(&String::from_utf8_lossy(&text))
}

/// The end of a text.
pub(crate) fn tail(text: &str) -> String {
    const LINES: usize = 6; // an error message, without the pages that cargo or node print before it
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

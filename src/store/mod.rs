//! The list and how it is kept: a mutex around the colors, one writer for the durable file. No HTTP but its entity tags.

mod change;
pub(crate) mod color;
mod colors;
mod file;
mod store;
mod writer;

pub(crate) use change::{Action, Change, Outcome};
pub(crate) use color::JsonError;
pub(crate) use colors::{Colors, tag_of};
pub(crate) use file::{DataFile, OpenError, SaveError};
pub(crate) use store::{NotSaved, Store};
pub(crate) use writer::Writer;

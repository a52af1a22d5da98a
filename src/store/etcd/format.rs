//! The values of a snapshot and of entries, in JSON, and which keys they have.

use std::io::Write as _;

use rustix::rand::{GetRandomFlags, getrandom};
use serde::Deserialize;

use super::EtcdError;
use crate::store::{Color, ColorList, Edit};

/// The format of both values. A later program may have a higher one, and a value that this one
/// cannot read.
const FORMAT: u32 = 1;

/// Bytes that a color has in a value besides its JSON: its id and what separates it from the next.
const BYTES_PER_COLOR: usize = 24;

/// An id that no other process has: 64 random bits from the kernel, in hexadecimal. Pauses that are
/// spread at random need less: fastrand begins with the time.
pub(super) fn random_id() -> String {
    let mut bytes = [0; 8];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    // getrandom(2): it fails only before the kernel has collected enough, for which it waits.
    assert_eq!(filled, Ok(bytes.len()), "the kernel has random bytes");
    format!("{:016x}", u64::from_ne_bytes(bytes))
}

/// Names the keys of one list.
#[derive(Clone)]
pub(super) struct Keys {
    /// KEY.
    key: String,
    /// The id of the list. `None` if it has none, since all services that had it were older than
    /// ids.
    pub(super) id: Option<Vec<u8>>,
}

impl Keys {
    pub(super) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), id: None }
    }

    pub(super) fn id_key(&self) -> String {
        format!("{}/id", self.key)
    }

    pub(super) fn list(&self) -> String {
        format!("{}/list", self.key)
    }

    pub(super) fn entry(&self, number: u64) -> String {
        format!("{}/log/{number:016x}", self.key)
    }

    /// The key behind all entries: `g` comes after all digits. `KEY/log/list` is behind it: KEY/log
    /// may be another list.
    pub(super) fn log_end(&self) -> String {
        format!("{}/log/g", self.key)
    }

    /// The number of an entry.
    pub(super) fn number(&self, key: &[u8]) -> Option<u64> {
        let key = str::from_utf8(key).ok()?;
        let number = u64::from_str_radix(key.rsplit_once('/')?.1, 16).ok()?;
        (self.entry(number) == key).then_some(number)
    }
}

/// The value of an entry.
#[derive(Deserialize)]
pub(super) struct LogEntry {
    /// Names the attempt that has put it. Random.
    pub(super) id: String,
    /// Whether a snapshot was put with it.
    pub(super) is_snapshot: bool,
    pub(super) edits: Vec<WrittenEdit>,
}

/// An edit as it is written: `[ID]`, `[ID,COLOR]` or `{"list":[[ID,COLOR],...]}`.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum WrittenEdit {
    Remove([i64; 1]),
    /// An update if the list has the id, or else an append.
    Put(i64, Color),
    ReplaceAll {
        list: Vec<(i64, Color)>,
    },
}

#[derive(Deserialize)]
struct Snapshot {
    number: u64,
    colors: Vec<(i64, Color)>,
}

/// Reads a value. `key`: for the error.
pub(super) fn read<'a, T: Deserialize<'a>>(key: &str, value: &'a [u8]) -> Result<T, EtcdError> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let malformed = |_| EtcdError::Malformed(key.to_owned());
    let Format { format } = serde_json::from_slice(value).map_err(malformed)?;
    if format > FORMAT {
        return Err(EtcdError::Newer);
    }
    serde_json::from_slice(value).map_err(malformed)
}

/// Reads a snapshot: the number of its entry, and the list.
pub(super) fn read_snapshot(key: &str, value: &[u8]) -> Result<(u64, ColorList), EtcdError> {
    let Snapshot { number, colors } = read(key, value)?;
    Ok((number, colors.into_iter().collect()))
}

pub(super) fn write_snapshot(number: u64, list: &ColorList) -> Vec<u8> {
    let mut value = format!(r#"{{"format":{FORMAT},"number":{number},"colors":"#).into_bytes();
    write_colors(&mut value, list);
    value.push(b'}');
    value
}

fn write_colors(value: &mut Vec<u8>, list: &ColorList) {
    value.push(b'[');
    for (place, (id, color)) in list.iter().enumerate() {
        if place > 0 {
            value.push(b',');
        }
        write_color(value, id, color);
    }
    value.push(b']');
}

fn write_color(value: &mut Vec<u8>, id: i64, color: &Color) {
    write!(value, "[{id},").expect("a Vec takes every byte");
    value.extend_from_slice(color.json_in_list());
    value.push(b']');
}

/// Appends edits to those of an entry.
pub(super) fn write_edits(value: &mut Vec<u8>, edits: &[Edit]) {
    for edit in edits {
        if !value.is_empty() {
            value.push(b',');
        }
        match edit {
            Edit::Append(id, color) | Edit::Update(id, color) => write_color(value, *id, color),
            Edit::Remove(id, _) => write!(value, "[{id}]").expect("a Vec takes every byte"),
            Edit::ReplaceAll(list) => {
                value.extend_from_slice(br#"{"list":"#);
                write_colors(value, list);
                value.push(b'}');
            }
        }
    }
}

/// What an entry is put for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Purpose {
    /// To make changes.
    Commit,
    /// To cut the log: the entry comes with a snapshot, and has no edits.
    Snapshot,
    /// To take the place in which an earlier commit could still be made; has no edits.
    Fence,
}

/// How the value of an entry begins that this attempt has put, and of no other one.
pub(super) fn entry_begin(id: &str) -> String {
    format!(r#"{{"format":{FORMAT},"id":"{id}""#)
}

/// The value of an entry. `edits`: by [`write_edits`].
pub(super) fn write_entry(id: &str, purpose: Purpose, edits: &[u8]) -> Vec<u8> {
    let is_snapshot = purpose == Purpose::Snapshot;
    let begin = format!(r#"{},"is_snapshot":{is_snapshot},"edits":["#, entry_begin(id));
    [begin.as_bytes(), edits, b"]}"].concat()
}

/// The most bytes that a snapshot of a list has.
pub(super) fn snapshot_bytes(list: &ColorList) -> usize {
    list.envelope_len() + BYTES_PER_COLOR * list.len()
}

impl WrittenEdit {
    /// Applies the edit to a list, and returns it. `None` if it does not fit the list.
    pub(super) fn apply(self, list: &mut ColorList) -> Option<Edit> {
        let edit = match self {
            Self::Remove([id]) => Edit::Remove(id, list.get(id)?.clone()),
            Self::Put(id, color) => match list.get(id) {
                Some(known) if known.name() == color.name() => Edit::Update(id, color),
                None if list.next_id().is_some_and(|next| id >= next) => Edit::Append(id, color),
                _ => return None,
            },
            Self::ReplaceAll { list } => Edit::ReplaceAll(list.into_iter().collect()),
        };
        list.apply(&edit);
        Some(edit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_later_format_is_not_read() {
        let read = |format: u32| {
            let value = format!(r#"{{"format":{format},"number":1,"colors":[]}}"#);
            read_snapshot("key", value.as_bytes()).map(|(number, _)| number)
        };
        assert!(matches!(read(FORMAT), Ok(1)));
        assert!(matches!(read(FORMAT + 1), Err(EtcdError::Newer)));
    }

    #[test]
    fn an_edit_that_does_not_fit_the_list_is_refused() {
        let color = |name: &str| Color::new(name, "1");
        for (edit, fits) in [
            (WrittenEdit::Put(2, color("a")), true),
            (WrittenEdit::Put(2, color("b")), false),
            (WrittenEdit::Put(3, color("b")), true),
            (WrittenEdit::Put(1, color("b")), false),
            (WrittenEdit::Remove([2]), true),
            (WrittenEdit::Remove([1]), false),
        ] {
            let mut list = ColorList::from_iter([(2, color("a"))]);
            assert_eq!(edit.apply(&mut list).is_some(), fits);
        }
    }
}

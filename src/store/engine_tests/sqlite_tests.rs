//! FILE, beside sqlite3 and other programs. How a commit fails on a disk that fails is tested in
//! `tests/wire/failing_disk.rs`.

use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;

use super::*;
use crate::store::sqlite::FilePlace;

struct FileTestPlace(PathBuf);

impl FileTestPlace {
    fn connect(&self) -> Connection {
        Connection::open(self.0.join("colors.db")).unwrap()
    }
}

impl TestPlace for FileTestPlace {
    fn open(&self, first: &ColorList) -> (Box<dyn Engine>, ColorList) {
        let place = FilePlace::find(&self.0.join("colors.db")).unwrap();
        let opened = place.open(Some(first.clone()), true).unwrap();
        (opened.engine, opened.list)
    }

    fn commit_elsewhere(&self, _: &ColorList, edits: &[Edit]) -> bool {
        let mut other = self.connect();
        other.busy_timeout(Duration::ZERO).unwrap();
        let commit = other.transaction().unwrap();
        let put = |id: i64, color: &Color| {
            let fields = color.fields();
            let sql = "INSERT OR REPLACE INTO color VALUES (?1, ?2, ?3)";
            commit.execute(sql, (id, fields.name, fields.value)).map(drop)
        };
        let written = edits.iter().try_for_each(|edit| match edit {
            Edit::Append(id, color) | Edit::Update(id, color) => put(*id, color),
            Edit::Remove(id, _) => {
                commit.execute("DELETE FROM color WHERE id = ?1", [id]).map(drop)
            }
            Edit::ReplaceAll(list) => {
                commit.execute("DELETE FROM color", [])?;
                list.iter().try_for_each(|(id, color)| put(id, color))
            }
        });
        written.and_then(|()| commit.commit()).is_ok()
    }

    const FINDS_EACH_COMMIT: bool = false;

    fn use_elsewhere(&self) -> Box<dyn Any> {
        let other = self.connect();
        other.execute_batch("BEGIN; SELECT * FROM color").unwrap();
        Box::new(other)
    }

    fn lock_elsewhere(&self) -> Option<Box<dyn Any>> {
        let other = self.connect();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        Some(Box::new(other))
    }
}

#[test]
fn a_database_does_what_the_writer_relies_on() {
    let name = format!("colors-contract-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir_all(&directory).unwrap();
    engine_contract(FileTestPlace(directory.clone()));
    fs::remove_dir_all(&directory).unwrap();
}

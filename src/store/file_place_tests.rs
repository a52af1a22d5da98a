//! What FILE may be, and what is told about everything else.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use rusqlite::Connection;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::engine::Save;
use super::sqlite::FilePlace;
use super::{Color, ColorList, OpenPlace, Place};

/// A new directory; removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("colors-place-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file; gives its path.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|it| name(it).into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn find(path: &Path) -> Result<Box<dyn Place>, String> {
    let place = FilePlace::find(path)?;
    place.check_usable()?;
    Ok(place)
}

/// As a start does it.
fn open(path: &Path, colors: usize) -> Result<OpenPlace, String> {
    let mut place = find(path)?;
    place.lock()?;
    let color = |number: usize| Color::new(&number.to_string(), "1");
    let seed = (!place.has_list()).then(|| (0..colors).map(color).collect());
    place.open(seed, true)
}

/// Why a start cannot use this path. `--check` says the same.
#[track_caller]
fn refusal(path: &Path) -> String {
    let seed = ColorList::from_iter([Color::new("a", "1")]);
    let check = |place: Box<dyn Place>| place.check((!place.has_list()).then_some(&seed));
    let checked = find(path).and_then(check).expect_err("it cannot be used");
    let opened = open(path, 1).map(drop).expect_err("it cannot be used");
    assert_eq!(checked, opened);
    opened
}

#[test]
fn of_several_first_starts_at_once_one_makes_the_file_and_the_others_are_told_of_it() {
    let directory = Directory::new("several");
    let file = directory.0.join("colors.db");
    let started = thread::scope(|scope| {
        [(); 4].map(|()| scope.spawn(|| open(&file, 1))).map(|start| start.join().unwrap())
    });
    let refused: Vec<&String> = started.iter().filter_map(|start| start.as_ref().err()).collect();
    let locked = "another process has locked the database; stop that process, or name another file \
                  with --data";
    assert_eq!(refused, [locked; 3]);
    assert!(started.iter().flatten().all(|place| place.is_new));
}

#[test]
fn a_path_that_is_no_file_is_refused_and_nothing_is_left() {
    let directory = Directory::new("no-file");
    fs::create_dir(directory.0.join("dir")).unwrap();
    mknodat(CWD, directory.0.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    symlink("dir", directory.0.join("link")).unwrap();
    let before = directory.names();
    let named = "it names a directory; name a file in it with --data";
    for file in [".", "..", "dir", "dir/", "dir/.", "dir/..", "link", "link/", "/", "missing/"] {
        assert_eq!(refusal(&directory.0.join(file)), named, "{file}");
    }
    assert_eq!(refusal(Path::new(".")), named);
    let special = "it is not a regular file; name another file with --data";
    for file in ["fifo", "/dev/null", "/dev/zero"] {
        assert_eq!(refusal(&directory.0.join(file)), special, "{file}");
    }
    assert_eq!(directory.names(), before);
    assert_eq!(fs::read_dir(directory.0.join("dir")).unwrap().count(), 0);
}

#[test]
fn a_path_that_leads_nowhere_is_told_with_the_part_that_is_to_blame() {
    let directory = Directory::new("nowhere");
    let path = |name: &str| directory.0.join(name).display().to_string();
    symlink("gone/colors.db", path("link")).unwrap();
    directory.write("list", "");
    let long = "x".repeat(250);
    symlink(format!("{long}/{long}"), path("short")).unwrap();
    fs::create_dir_all(directory.0.join(&long).join(&long)).unwrap();
    let too_long = "its path is too long: SQLite takes 504 bytes, and 247 of them for its name; \
                    name another file with --data";
    let create = |name| format!("no such directory; create it with mkdir -p {}", path(name));
    let is_file = format!(
        "cannot search {}: Not a directory (os error 20); name another file with --data",
        path("list/no")
    );
    // in which even root makes no files
    let proc = "cannot make /proc/.colors-new: No such file or directory (os error 2); name \
                another file with --data";
    for (file, reason) in [
        ("/proc/colors.db", proc),
        ("no/such/colors.db", &create("no/such")),
        ("link", &create("gone")),
        ("list/no/colors.db", &is_file),
        ("short/colors.db", too_long),
        (&"y".repeat(250), too_long),
    ] {
        assert_eq!(refusal(&directory.0.join(file)), reason, "{file}");
    }
}

#[test]
fn what_is_no_database_of_colors_is_left_alone() {
    let directory = Directory::new("foreign");
    let json = "it is a list in JSON; start with it as --seed, and name a new file with --data";
    let none = "it is not a database of colors; name another file with --data";
    let foreign = "it is the database of another program; name another file with --data";
    for (content, reason) in [
        ("[\n{\"name\":\"a\",\"value\":\"1\"}\n]", json),
        (" {\"data\":[]}", json),
        ("hello", none),
        ("SQLite format 3\0", foreign),
        ("\0", none),
    ] {
        let file = directory.write("colors.db", content);
        assert_eq!(refusal(&file), reason);
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
        assert_eq!(directory.names(), ["colors.db"]);
    }
    // an empty file, as mktemp makes one, is a new one
    assert!(open(&directory.write("colors.db", ""), 1).unwrap().is_new);
}

#[test]
fn the_database_of_another_program_or_a_damaged_one_is_left_alone() {
    let directory = Directory::new("damaged");
    let file = directory.0.join("colors.db");
    let edit = |statements: &str| {
        Connection::open(&file).unwrap().execute_batch(statements).unwrap();
        fs::read(&file).unwrap()
    };
    let foreign = edit(
        "PRAGMA journal_mode=WAL; \
         CREATE TABLE color (id INTEGER PRIMARY KEY, name TEXT, value TEXT)",
    );
    fs::remove_file(&file).unwrap();
    open(&file, 2000).unwrap().engine.close().unwrap();
    let good = fs::read(&file).unwrap();
    let edited = |statements: &str| {
        fs::write(&file, &good).unwrap();
        edit(statements)
    };
    let damaged = |bytes: Range<usize>| {
        let mut file = good.clone();
        file[bytes].fill(0xa5);
        file
    };
    let other = "it is the database of another program, or made by sqlite3 from a dump; name";
    let long = "UPDATE color SET name = printf('%.5000c', 'x') WHERE id = 3";
    let row = "the row of table color with id 3 is not a color: its name is too long; correct it";
    let table = "its table color is not the one that the service makes; copy the rows into that";
    let damage = "it is damaged (";
    let page = 4096;
    for (bytes, reason) in [
        (foreign, other),
        (edited(long), row),
        (edited("DROP TABLE color"), table),
        (damaged(16..60), damage),
        // the size of a page, the schema, a page
        (damaged(16..18), damage),
        (damaged(100..200), damage),
        (damaged(3 * page..4 * page), damage),
        (good[..3 * page].to_vec(), damage),
    ] {
        fs::write(&file, &bytes).unwrap();
        let found = refusal(&file);
        let fix = "); move it away, and start with --seed and a backup, which makes a new file";
        assert!(found.starts_with(reason), "{found}");
        assert!(reason != damage || found.ends_with(fix), "{found}");
        assert!(FilePlace::find(&file).and_then(|place| place.dump()).is_err(), "{found}");
        assert!(fs::read(&file).unwrap() == bytes, "{found}");
        let _ = fs::remove_file(directory.0.join("colors.db-shm"));
        assert_eq!(directory.names(), ["colors.db"], "{found}");
    }
}

#[test]
fn a_dump_and_a_check_roll_back_what_a_program_has_left_as_a_start_does() {
    let directory = Directory::new("journal");
    let file = directory.0.join("colors.db");
    let uses: [fn(&dyn Place) -> usize; 2] =
        [|place| place.dump().unwrap().len(), |place| place.check(None).unwrap()];
    for used in uses {
        open(&file, 3).unwrap().engine.close().unwrap();
        let other = Connection::open(&file).unwrap();
        // writes pages to FILE before the commit
        other.execute_batch("PRAGMA journal_mode=DELETE; PRAGMA cache_size=2; BEGIN").unwrap();
        let rows = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50)";
        let insert = "INSERT INTO color (name, value) SELECT printf('%3000d', x), '' FROM n";
        other.execute_batch(&format!("{rows} {insert}")).unwrap();
        // what a kill of that program would leave
        let left = ["colors.db", "colors.db-journal"];
        let bytes = left.map(|name| fs::read(directory.0.join(name)).unwrap());
        drop(other);
        left.iter().zip(bytes).for_each(|(name, bytes)| drop(directory.write(name, bytes)));
        assert_eq!(used(&*find(&file).unwrap()), 3);
        let mut names = directory.names();
        names.retain(|name| !name.ends_with("-shm"));
        assert_eq!(names, ["colors.db"]);
        assert_eq!(find(&file).unwrap().dump().unwrap().len(), 3);
        fs::remove_file(&file).unwrap();
    }
}

/// What another program does, how it is undone, and why the service refuses it.
const REFUSED: [(&str, &str, &str); 6] = [
    (
        "CREATE TRIGGER t BEFORE INSERT ON Color BEGIN SELECT RAISE(IGNORE); END",
        "DROP TRIGGER t",
        "it has the trigger \"t\", which may change what the service writes; remove it with \
         sqlite3",
    ),
    (
        "ALTER TABLE color RENAME TO old; \
         CREATE TABLE color (id INTEGER PRIMARY KEY, \
         name TEXT NOT NULL UNIQUE ON CONFLICT REPLACE, value TEXT NOT NULL) STRICT; \
         INSERT INTO color SELECT * FROM old",
        "DROP TABLE color; ALTER TABLE old RENAME TO color",
        "its table color is not the one that the service makes; copy the rows into that, with \
         sqlite3: CREATE TABLE color (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value TEXT NOT \
         NULL) STRICT",
    ),
    (
        "INSERT INTO color VALUES (9, CAST(x'ff' AS TEXT), '1')",
        "DELETE FROM color WHERE id = 9",
        "the row of table color with id 9 is not a color: it is not UTF-8; correct it with sqlite3",
    ),
    (
        "PRAGMA user_version=2",
        "PRAGMA user_version=1",
        "a newer version of colors made it; install that one, or name another file with --data",
    ),
    // made by a program that has a collation, or a function, which SQLite here does not have
    (
        "CREATE INDEX i ON color (name COLLATE NOCASE); PRAGMA writable_schema=ON; \
         UPDATE sqlite_schema SET sql = replace(sql, 'NOCASE', 'german') WHERE name = 'i'; \
         PRAGMA writable_schema=OFF; CREATE TABLE theirs (x)",
        "DROP INDEX i; DROP TABLE theirs",
        "with its index \"i\" every change fails: no such collation sequence: german; remove the \
         index with sqlite3",
    ),
    (
        "CREATE INDEX i ON color (value) WHERE abs(name); PRAGMA writable_schema=ON; \
         UPDATE sqlite_schema SET sql = replace(sql, 'abs', 'hue') WHERE name = 'i'; \
         PRAGMA writable_schema=OFF; CREATE TABLE theirs (x)",
        "DROP INDEX i; DROP TABLE theirs",
        "with its index \"i\" every change fails: unknown function: hue(); remove the index with \
         sqlite3",
    ),
];

#[test]
fn what_a_start_refuses_is_refused_by_an_engine_until_it_is_gone() {
    let directory = Directory::new("refused");
    let file = directory.0.join("colors.db");
    for (make, undo, reason) in REFUSED {
        let mut engine = open(&file, 1).unwrap().engine;
        let other = Connection::open(&file).unwrap();
        for _ in 0..2 {
            other.execute_batch(make).unwrap();
            assert_eq!(engine.poll().unwrap_err().to_string(), reason);
            // the second is the first save after one that has failed
            for has_failed in [false, true] {
                let (begun, oldest) = (Instant::now(), None);
                let begun = engine.begin(&Save { has_failed, is_behind: false, begun, oldest });
                engine.roll_back();
                assert_eq!(begun.map(drop).unwrap_err().to_string(), reason);
            }
            other.execute_batch(undo).unwrap();
            assert!(engine.poll().is_ok(), "{reason}");
        }
        other.execute_batch(make).unwrap();
        drop(engine);
        // as sqlite3 makes one; a start makes it a database with a WAL if its table is ours
        other.execute_batch("PRAGMA journal_mode=DELETE").unwrap();
        drop(other);
        let before = fs::read(&file).unwrap();
        assert_eq!(refusal(&file), reason);
        assert_eq!(FilePlace::find(&file).and_then(|place| place.dump()).unwrap_err(), reason);
        let is_ours = reason.starts_with("the row of table color");
        assert_eq!(fs::read(&file).unwrap() == before, !is_ours, "{reason}");
        directory.names().iter().for_each(|name| fs::remove_file(directory.0.join(name)).unwrap());
    }
}

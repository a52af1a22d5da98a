//! Tests of reading a FILE that other programs write, on real files.

use std::cell::Cell;
use std::path::PathBuf;

use super::*;
use crate::store::sqlite_locks::{PENDING, SHARED};

/// A directory with `FILE`, a database of one color without FILE-wal. Removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir()
            .join(format!("colors-foreign-reader-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let scratch = Self(directory);
        scratch.fill("FILE", "old");
        scratch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn fill(&self, name: &str, color: &str) {
        let colors = Colors::from_iter([crate::store::Color::new(color, "")]);
        fs::write(self.path(name), "").unwrap();
        assert!(database::fill(&self.path(name), &colors).unwrap());
        self.open(name).execute_batch("PRAGMA journal_mode=WAL").unwrap();
    }

    fn open(&self, name: &str) -> Connection {
        Connection::open(self.path(name)).unwrap()
    }

    /// Writes the content of a file over FILE, as who copies it does.
    fn overwrite(&self, from: &str) {
        fs::write(self.path("FILE"), fs::read(self.path(from)).unwrap()).unwrap();
    }

    fn read(&self) -> Result<(String, Option<Stamps>), DatabaseError> {
        read_snapshot(&self.path("FILE"), &name_in)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Waits until a change that comes now leaves another stamp.
    fn settle(&self) {
        let path = self.path("FILE");
        while Stamps::of(&path).unwrap().if_old_enough().is_none() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The name of the first color.
fn name_in(connection: &Connection) -> Result<String, DatabaseError> {
    let colors = rows::read_list(connection, &Colors::default())?;
    let (_, first) = colors.iter().next().expect("there is one");
    Ok(first.fields().name.into_owned())
}

fn name(read: Result<(String, Option<Stamps>), DatabaseError>) -> String {
    read.unwrap().0
}

#[test]
fn what_is_changed_without_the_lock_during_a_read_is_read_again() {
    let scratch = Directory::new("changed");
    scratch.fill("new", "new");
    let reads = Cell::new(0);
    let found = read_snapshot(&scratch.path("FILE"), &|connection| {
        reads.set(reads.get() + 1);
        let found = name_in(connection);
        if reads.get() == 1 {
            scratch.overwrite("new");
        }
        found
    });
    assert_eq!((name(found), reads.get()), ("new".to_owned(), 2));
    // A file that looks damaged after such a change is read again as well.
    let found = read_snapshot(&scratch.path("FILE"), &|connection| {
        reads.set(reads.get() + 1);
        if reads.get() == 3 {
            scratch.overwrite("new");
            return Err(DatabaseError::Damaged("it was half of either".to_owned()));
        }
        name_in(connection)
    });
    assert_eq!((name(found), reads.get()), ("new".to_owned(), 4));
}

#[test]
fn a_wal_that_appears_during_a_read_is_read() {
    let scratch = Directory::new("wal");
    let writer = Cell::new(None);
    let found = read_snapshot(&scratch.path("FILE"), &|connection| {
        let found = name_in(connection);
        if writer.take().is_none() {
            let other = scratch.open("FILE");
            other.execute_batch("UPDATE color SET name = 'new'").unwrap();
            writer.set(Some(other));
        }
        found
    });
    assert_eq!(name(found), "new");
}

#[test]
fn a_file_that_is_being_changed_under_the_lock_is_waited_for() {
    let scratch = Directory::new("locked");
    let writer = File::options().read(true).write(true).open(scratch.path("FILE")).unwrap();
    for range in [PENDING, SHARED] {
        assert!(set_lock(&writer, libc::F_WRLCK, range).unwrap());
        let begun = Instant::now();
        assert_eq!(scratch.read(), Err(DatabaseError::Busy));
        assert!(begun.elapsed() >= BUSY_TIME, "{:?}", begun.elapsed());
        assert!(set_lock(&writer, libc::F_UNLCK, range).unwrap());
        assert_eq!(name(scratch.read()), "old");
    }
}

#[test]
fn a_lock_that_sqlite_meets_is_waited_for_only_once() {
    let scratch = Directory::new("once");
    scratch.open("FILE").execute_batch("PRAGMA journal_mode=DELETE").unwrap();
    let writer = File::options().read(true).write(true).open(scratch.path("FILE")).unwrap();
    // Beside the journal of a transaction that is under way, the reader's locks are those of
    // SQLite.
    assert!(set_lock(&writer, libc::F_WRLCK, RESERVED).unwrap());
    fs::write(scratch.path("FILE-journal"), "journal").unwrap();
    let reads = Cell::new(0);
    let found = read_snapshot(&scratch.path("FILE"), &|connection| {
        reads.set(reads.get() + 1);
        if reads.get() > 1 {
            return name_in(connection);
        }
        assert!(set_lock(&writer, libc::F_WRLCK, PENDING).unwrap());
        let begun = Instant::now();
        let found = name_in(connection);
        assert!(begun.elapsed() < BUSY_TIME, "{:?}", begun.elapsed());
        assert!(set_lock(&writer, libc::F_UNLCK, PENDING).unwrap());
        found
    });
    assert_eq!((name(found), reads.get()), ("old".to_owned(), 2));
}

#[test]
fn the_lock_is_held_during_a_read_and_not_after_it() {
    let scratch = Directory::new("holding");
    let writer = File::options().read(true).write(true).open(scratch.path("FILE")).unwrap();
    let is_free = || set_lock(&writer, libc::F_WRLCK, SHARED).unwrap();
    let during = read_snapshot(&scratch.path("FILE"), &|connection| {
        // A lock of the process would end when the process closes a descriptor of the file.
        drop(File::open(scratch.path("FILE")).unwrap());
        name_in(connection).map(|_| is_free())
    });
    assert_eq!((during.unwrap().0, is_free()), (false, true));
}

#[test]
fn what_is_read_in_place_of_another_file_is_one_of_both() {
    let scratch = Directory::new("renamed");
    let path = scratch.path("FILE");
    let number = Cell::new(0);
    let (found, seen) = read_snapshot(&path, &|connection| {
        let found = name_in(connection);
        // Each read ends after another file was renamed into place.
        number.set(number.get() + 1);
        let new = format!("{}", number.get());
        scratch.fill(&new, &new);
        fs::rename(scratch.path(&new), &path).unwrap();
        found
    })
    .unwrap();
    assert_eq!((found.as_str(), number.get()), ("old", 1));
    assert_ne!(seen.as_ref(), Some(&Stamps::of(&path).unwrap()));
    assert_eq!(name(scratch.read()), "1");
}

#[test]
fn changes_that_are_applied_in_part_are_not_read() {
    let scratch = Directory::new("txid");
    let set_time = |name: &str, seconds: u64| {
        let file = File::options().write(true).open(scratch.path(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    fs::write(scratch.path("FILE-txid"), "0000000000000002").unwrap();
    for (file, txid, is_read) in [(1_000, 1_000, true), (1_000, 1_001, true), (1_001, 1_000, false)]
    {
        set_time("FILE", file);
        set_time("FILE-txid", txid);
        let found = try_read_snapshot(&scratch.path("FILE"), &name_in);
        assert_eq!(found.is_ok(), is_read, "{file} {txid}: {found:?}");
    }
    let error = try_read_snapshot(&scratch.path("FILE"), &name_in).unwrap_err();
    let reason = "changes were applied in part: it is newer than FILE-txid; if litestream restore \
                  does not run any more, remove both and restore again";
    assert_eq!(error.to_string(), reason);
}

#[test]
fn a_wal_is_read_through_and_nothing_is_made_or_left() {
    let scratch = Directory::new("through");
    let writer = scratch.open("FILE");
    writer.execute_batch("UPDATE color SET name = 'new'").unwrap();
    let names = scratch.names();
    assert_eq!(names, ["FILE", "FILE-shm", "FILE-wal"]);
    scratch.settle();
    let (found, seen) = scratch.read().unwrap();
    assert_eq!((found.as_str(), scratch.names()), ("new", names.clone()));
    assert_eq!(seen, Some(Stamps::of(&scratch.path("FILE")).unwrap()));
    // A second change may leave the same stamp.
    writer.execute_batch("UPDATE color SET name = 'newer'").unwrap();
    let (found, seen) = scratch.read().unwrap();
    let is_young = Stamps::of(&scratch.path("FILE")).unwrap().if_old_enough().is_none();
    assert!(found == "newer" && (seen.is_none() || !is_young));
    // A program that closes it cannot remove FILE-wal meanwhile, which SQLite would make again.
    let writer = Cell::new(Some(writer));
    let found = read_snapshot(&scratch.path("FILE"), &|connection| {
        drop(writer.take());
        assert_eq!(scratch.names(), names);
        name_in(connection)
    });
    assert_eq!(name(found), "newer");
}

#[test]
fn what_a_kill_leaves_of_a_wal_is_read_at_once_without_its_shm() {
    let scratch = Directory::new("no-shm");
    let writer = scratch.open("FILE");
    writer.execute_batch("UPDATE color SET name = 'new'").unwrap();
    let wal = fs::read(scratch.path("FILE-wal")).unwrap();
    let torn = [&wal[..32], &[0xa5; 4120]].concat();
    fs::copy(scratch.path("FILE"), scratch.path("copy")).unwrap();
    for (wal, found) in [
        (Some(&wal[..]), "new"),
        (Some(&torn), "old"),
        (Some(&wal[..100]), "old"),
        (Some(&wal[..32]), "old"),
        (Some(&wal[..20]), "old"),
        (None, "old"),
    ] {
        let _ = fs::remove_file(scratch.path("copy-wal"));
        if let Some(wal) = wal {
            fs::write(scratch.path("copy-wal"), wal).unwrap();
        }
        for shm in [None, Some("")] {
            let _ = fs::remove_file(scratch.path("copy-shm"));
            if let Some(shm) = shm {
                fs::write(scratch.path("copy-shm"), shm).unwrap();
            }
            let names = scratch.names();
            let read = try_read_snapshot(&scratch.path("copy"), &name_in);
            assert_eq!((name(read).as_str(), scratch.names()), (found, names));
        }
    }
}

#[test]
fn a_wal_that_is_missing_beside_its_shm_is_not_taken_for_an_empty_one() {
    let scratch = Directory::new("no-wal");
    let writer = scratch.open("FILE");
    writer.execute_batch("UPDATE color SET name = 'new'").unwrap();
    fs::rename(scratch.path("FILE-wal"), scratch.path("away")).unwrap();
    let reason = "FILE-wal is missing, and a program uses the database; move it back";
    // Only one try: it takes the lock away from a writer in its own process.
    let found = try_read_snapshot(&scratch.path("FILE"), &name_in);
    assert_eq!(found.unwrap_err().to_string(), reason);
    fs::rename(scratch.path("away"), scratch.path("FILE-wal")).unwrap();
    assert_eq!(name(scratch.read()), "new");
}

#[test]
fn a_journal_is_read_under_unless_it_is_hot() {
    let scratch = Directory::new("journal");
    let writer = scratch.open("FILE");
    writer.execute_batch("PRAGMA journal_mode=PERSIST; UPDATE color SET name = 'new'").unwrap();
    assert_eq!(name(scratch.read()), "new");
    // Such a journal is left beside another file.
    scratch.fill("copy", "with a WAL");
    fs::copy(scratch.path("FILE-journal"), scratch.path("copy-journal")).unwrap();
    assert_eq!(name(read_snapshot(&scratch.path("copy"), &name_in)), "with a WAL");
    // Nobody else sees a transaction that is under way.
    writer.execute_batch("BEGIN IMMEDIATE; UPDATE color SET name = 'newer'").unwrap();
    assert_eq!(name(scratch.read()), "new");
    // FILE is written in part, and is copied as a crash would leave it.
    writer.execute_batch("PRAGMA cache_spill=1; PRAGMA cache_size=1").unwrap();
    let row = "INSERT INTO color (name, value) VALUES ('x', hex(zeroblob(3000)))";
    (0..20).for_each(|_| assert_eq!(writer.execute(row, []), Ok(1)));
    for suffix in ["", "-journal"] {
        fs::copy(scratch.path(&format!("FILE{suffix}")), scratch.path(&format!("copy{suffix}")))
            .unwrap();
    }
    assert_eq!(read_snapshot(&scratch.path("copy"), &name_in), Err(DatabaseError::HotJournal));
    assert!(probe::has_journal(&scratch.path("copy")));
    drop(scratch.open("copy").execute_batch("SELECT * FROM color"));
    assert_eq!(name(read_snapshot(&scratch.path("copy"), &name_in)), "new");
}

#[test]
fn a_journal_of_a_change_of_the_mode_is_waited_for_unless_that_was_ended() {
    let scratch = Directory::new("mode");
    let path = scratch.path("FILE");
    fs::write(scratch.path("FILE-journal"), "journal").unwrap();
    let writer = File::options().read(true).write(true).open(&path).unwrap();
    assert!(set_lock(&writer, libc::F_WRLCK, RESERVED).unwrap());
    assert_eq!(try_read_snapshot(&path, &name_in), Err(DatabaseError::Changing));
    assert!(set_lock(&writer, libc::F_UNLCK, RESERVED).unwrap());
    assert_eq!(try_read_snapshot(&path, &name_in), Err(DatabaseError::HotJournal));
    assert_eq!(scratch.names(), ["FILE", "FILE-journal"]);
}

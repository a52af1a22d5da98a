//! Tests of the database on real files: edits, failures, other programs, and a FILE-wal that was
//! cut short.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::store::sqlite::lock_or_make;

fn color(id: i64, name: &str) -> (i64, Color) {
    (id, Color::new(name, "value"))
}

fn append(id: i64, name: &str) -> Edit {
    Edit::Append(id, Color::new(name, "value"))
}

fn list(colors: impl IntoIterator<Item = (i64, Color)>) -> ColorList {
    colors.into_iter().collect()
}

fn ids(colors: &ColorList) -> Vec<i64> {
    colors.iter().map(|(id, _)| id).collect()
}

/// A database of the color `a`, in a new directory; removed when dropped.
struct Scratch {
    path: PathBuf,
    database: Database,
}

impl Scratch {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("colors-database-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("colors.db");
        let seed = list([color(1, "a")]);
        let (lock, is_new) = lock_or_make(&path, Some(&seed), None).unwrap();
        assert!(is_new);
        let database = Database::open(&path, &path, lock).unwrap();
        assert_eq!((ids(&database.list), &database.list), (vec![1], &list([color(1, "a")])));
        Self { path, database }
    }

    /// Saves edits of the list that is known.
    fn save(&mut self, edits: impl IntoIterator<Item = Edit>) -> Result<(), StorageError> {
        let edits: Vec<Edit> = edits.into_iter().collect();
        let mut version = self.database.list.clone();
        let written = self.database.write(&edits, &version);
        edits.iter().for_each(|edit| drop(version.apply(edit)));
        let saved = written.and_then(|written| {
            assert!(matches!(written, Written::Yes));
            self.database.commit(&version)
        });
        self.database.roll_back();
        saved.map(|commit| assert!(matches!(commit, Commit::Done)))
    }

    /// Begins a save; returns whether another list was found.
    fn begin(&mut self) -> bool {
        let begun = Instant::now();
        let save = Save { has_failed: false, is_behind: false, begun, oldest: None };
        match self.database.begin(&save).unwrap() {
            Begun::Ready(found) => found.is_some(),
            Begun::Locked(..) => panic!("nobody has it locked"),
        }
    }

    fn read(&self) -> ColorList {
        Database::read_recovering(&self.path).unwrap().0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.path.parent().unwrap());
    }
}

#[test]
fn edits_are_made_by_id() {
    let mut scratch = Scratch::new("edits");
    assert!(!scratch.begin());
    scratch.save([append(7, "b"), append(9, "b")]).unwrap();
    assert!(!scratch.begin());
    let replaced = Color::new("b", "é\0\"\n");
    scratch.save([Edit::Update(7, replaced.clone()), Edit::Remove(1, Color::new("", ""))]).unwrap();
    let colors = scratch.read();
    assert_eq!((ids(&colors), &colors), (vec![7, 9], &list([(7, replaced), color(9, "b")])));
    assert!(!scratch.begin());
    let other = list([color(1, "x"), color(2, "y")]);
    scratch.save([Edit::ReplaceAll(other.clone()), append(3, "z")]).unwrap();
    let colors = scratch.read();
    assert_eq!(
        (ids(&colors), &colors),
        (vec![1, 2, 3], &list([color(1, "x"), color(2, "y"), color(3, "z")]))
    );
}

#[test]
fn a_commit_of_which_one_edit_fails_makes_none() {
    let mut scratch = Scratch::new("failure");
    scratch.begin();
    let error = scratch.save([append(2, "b"), append(1, "c")]).unwrap_err();
    assert_eq!(error.to_string(), "UNIQUE constraint failed: color.id");
    assert_eq!(ids(&scratch.read()), [1]);
    scratch.begin();
    scratch.save([append(2, "b")]).unwrap();
}

#[test]
fn what_another_program_commits_is_the_list_at_the_next_poll_and_the_next_save() {
    let mut scratch = Scratch::new("foreign");
    let other = Connection::open(&scratch.path).unwrap();
    let insert = "INSERT INTO color (name, value) VALUES ('c', 'value')";
    other.execute(insert, []).unwrap();
    let both = list([color(1, "a"), color(2, "c")]);
    let edits = vec![Edit::ReplaceAll(both.clone())];
    assert_eq!(scratch.database.poll(), Ok(Some(Refresh { list: both, edits })));
    assert_eq!(scratch.database.poll(), Ok(None));
    other.execute("UPDATE color SET id = id + 10", []).unwrap();
    assert!(scratch.begin());
    assert_eq!(ids(&scratch.database.list), [11, 12]);
    // The write lock is held during a save, and not longer.
    other.busy_timeout(Duration::ZERO).unwrap();
    other.execute(insert, []).unwrap_err();
    scratch.save([Edit::Remove(11, Color::new("", ""))]).unwrap();
    other.execute(insert, []).unwrap();
    assert!(scratch.begin());
    assert_eq!(ids(&scratch.database.list), [12, 13]);
}

#[test]
fn another_program_may_checkpoint_and_vacuum_between_two_saves() {
    let mut scratch = Scratch::new("checkpoint");
    let other = Connection::open(&scratch.path).unwrap();
    for (id, statement) in [
        (2, "PRAGMA wal_checkpoint(TRUNCATE)"),
        (3, "VACUUM"),
        (4, "PRAGMA wal_checkpoint(RESTART)"),
        (5, "ANALYZE"),
        (6, "SELECT 1"),
    ] {
        scratch.begin();
        scratch.save([append(id, "b")]).unwrap();
        other.prepare(statement).unwrap().query([]).unwrap().next().unwrap();
    }
    assert_eq!(
        (ids(&scratch.read()), ids(&scratch.database.list)),
        ((1..=6).collect(), (1..=6).collect())
    );
}

#[test]
fn colors_that_another_program_leaves_alone_share_their_memory() {
    let mut scratch = Scratch::new("sharing");
    let other = Connection::open(&scratch.path).unwrap();
    other.execute("INSERT INTO color (name, value) VALUES ('c', 'value')", []).unwrap();
    let before = scratch.database.list.clone();
    assert!(scratch.begin());
    let address = |colors: &ColorList| colors.get(1).unwrap().json.bytes().as_ptr();
    assert_eq!(address(&before), address(&scratch.database.list));
}

#[test]
fn a_wal_that_is_cut_short_is_one_of_the_lists_before() {
    let mut scratch = Scratch::new("cut");
    let mut lists = vec![list([color(1, "a")])];
    for (id, name) in [(2, "b"), (3, "c")] {
        scratch.begin();
        scratch.save([append(id, name)]).unwrap();
        lists.push(scratch.read());
    }
    let wal = fs::read(wal_files::with_suffix(&scratch.path, "-wal")).unwrap();
    let copy = scratch.path.with_file_name("copy.db");
    fs::copy(&scratch.path, &copy).unwrap();
    let mut commits = 0;
    // A frame has a header of 24 bytes and a page of 4,096. The first frame is behind a header of
    // 32 bytes. The test tries each byte around the ends of frames, and some between.
    let is_tried =
        |end: &usize| (end + 4120 - 64) % 4120 < 80 || end.is_multiple_of(29) || *end == wal.len();
    for end in (0..=wal.len()).filter(is_tried) {
        fs::write(wal_files::with_suffix(&copy, "-wal"), &wal[..end]).unwrap();
        let colors = Database::read_recovering(&copy).unwrap().0;
        assert!(
            colors == lists[commits] || Some(&colors) == lists.get(commits + 1),
            "{end}: {colors:?}"
        );
        commits = lists.iter().position(|list| *list == colors).unwrap();
    }
    assert_eq!(commits, 2);
}

#[test]
fn a_copy_without_its_shm_is_read() {
    let mut scratch = Scratch::new("link");
    scratch.begin();
    scratch.save([append(2, "b")]).unwrap();
    let beside = |name: &str| scratch.path.with_file_name(name);
    fs::copy(&scratch.path, beside("copy.db")).unwrap();
    fs::copy(beside("colors.db-wal"), beside("copy.db-wal")).unwrap();
    assert_eq!(ids(&Database::read_recovering(&beside("copy.db")).unwrap().0), [1, 2]);
}

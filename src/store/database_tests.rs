//! Tests of the database on real files: edits, failures, other programs, and logs that were cut short.

use super::*;

fn color(id: i64, name: &str) -> Color {
    Color { id, ..Color::new(name, "value") }
}

fn ids(colors: &[Color]) -> Vec<i64> {
    colors.iter().map(|color| color.id).collect()
}

/// A database of the color `a`, in a new directory.
fn new_database(name: &str) -> (PathBuf, Database) {
    let directory = std::env::temp_dir().join(format!("colors-database-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("colors.db");
    let lock = lock(&path).unwrap();
    fill(&path, &[color(0, "a")]).unwrap();
    let (database, colors) = Database::open(&path, lock).unwrap();
    assert_eq!((ids(&colors), colors), (vec![1], vec![color(1, "a")]));
    (path, database)
}

fn remove_directory_of(path: &Path) {
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn edits_are_made_by_id() {
    let (path, mut database) = new_database("edits");
    database.commit(&[Edit::Insert(1, color(7, "b")), Edit::Insert(2, color(9, "b"))]).unwrap();
    assert!(database.begin().unwrap().is_none());
    let replaced = Color { id: 7, ..Color::new("b", "é\0\"\n") };
    database.commit(&[Edit::Replace(1, replaced.clone()), Edit::Remove(0, color(1, "a"))]).unwrap();
    database.begin().unwrap();
    let colors = read(&path, true).unwrap();
    assert_eq!((ids(&colors), colors), (vec![7, 9], vec![replaced, color(9, "b")]));
    database.close();
    assert!(!data_file::with_suffix(&path, "-wal").exists());
    assert_eq!(ids(&read(&path, true).unwrap()), [7, 9]);
    remove_directory_of(&path);
}

#[test]
fn a_commit_of_which_one_edit_fails_makes_none() {
    let (path, mut database) = new_database("failure");
    let error = database.commit(&[Edit::Insert(1, color(2, "b")), Edit::Insert(2, color(1, "c"))]).unwrap_err();
    assert_eq!(error.to_string(), "UNIQUE constraint failed: color.id");
    database.begin().unwrap();
    assert_eq!(ids(&read(&path, false).unwrap()), [1]);
    database.commit(&[]).unwrap();
    remove_directory_of(&path);
}

#[test]
fn what_another_program_writes_between_two_commits_is_the_list_then() {
    let (path, mut database) = new_database("foreign");
    let other = Connection::open(&path).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    let insert = "INSERT INTO color (name, value) VALUES ('c', 'value')";
    other.execute(insert, []).unwrap_err();
    database.commit(&[Edit::Insert(1, color(2, "b"))]).unwrap();
    other.execute(insert, []).unwrap();
    let colors = database.begin().unwrap().expect("it is noticed");
    assert_eq!(colors, [color(1, "a"), color(2, "b"), color(3, "c")]);
    assert!(database.begin().unwrap().is_none());
    other.execute(insert, []).unwrap_err();
    remove_directory_of(&path);
}

#[test]
fn another_program_may_checkpoint_between_two_commits() {
    let (path, mut database) = new_database("checkpoint");
    let other = Connection::open(&path).unwrap();
    database.commit(&[Edit::Insert(1, color(2, "b"))]).unwrap();
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    assert_eq!(fs::metadata(data_file::with_suffix(&path, "-wal")).unwrap().len(), 0);
    database.begin().unwrap();
    database.commit(&[Edit::Insert(2, color(3, "c"))]).unwrap();
    remove_directory_of(&path);
}

#[test]
fn a_log_that_is_cut_short_is_one_of_the_lists_before() {
    let (path, mut database) = new_database("cut");
    let mut lists = vec![vec![color(1, "a")]];
    for (id, name) in [(2, "b"), (3, "c")] {
        database.commit(&[Edit::Insert(lists.len(), color(id, name))]).unwrap();
        database.begin().unwrap();
        lists.push(read(&path, false).unwrap());
    }
    let log = fs::read(data_file::with_suffix(&path, "-wal")).unwrap();
    let copy = path.with_file_name("copy.db");
    fs::copy(&path, &copy).unwrap();
    let mut commits = 0;
    // a frame has 24 bytes and a page of 4,096, behind 32 bytes of the log's own: every byte around its ends, and some between
    let is_tried = |end: &usize| (end + 4120 - 64) % 4120 < 80 || end.is_multiple_of(29) || *end == log.len();
    for end in (0..=log.len()).filter(is_tried) {
        fs::write(data_file::with_suffix(&copy, "-wal"), &log[..end]).unwrap();
        let colors = read(&copy, false).unwrap();
        assert!(colors == lists[commits] || Some(&colors) == lists.get(commits + 1), "{end}: {colors:?}");
        commits = lists.iter().position(|list| *list == colors).unwrap();
    }
    assert_eq!(commits, 2);
    remove_directory_of(&path);
}

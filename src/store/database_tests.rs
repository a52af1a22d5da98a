//! Tests of the database on real files: edits, failures, other programs, and logs that were cut short.

use super::*;

fn color(name: &str) -> Color {
    Color::new(name, "value")
}

/// A database of the color `a`, in a new directory.
fn new_database(name: &str) -> (PathBuf, Database) {
    let directory = std::env::temp_dir().join(format!("colors-database-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("colors.db");
    let lock = lock(&path).unwrap();
    fill(&path, &[color("a")]).unwrap();
    let (database, rows) = Database::open(&path, lock).unwrap();
    assert_eq!((rows.ids, rows.colors), (vec![1], vec![color("a")]));
    (path, database)
}

fn remove_directory_of(path: &Path) {
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

#[test]
fn edits_are_made_by_id() {
    let (path, mut database) = new_database("edits");
    database.commit(&[(7, Edit::Append(color("b"))), (9, Edit::Append(color("b")))]).unwrap();
    assert!(database.begin().unwrap().is_none());
    database.commit(&[(7, Edit::Replace(1, Color::new("b", "é\0\"\n"))), (1, Edit::Remove(0))]).unwrap();
    database.begin().unwrap();
    let rows = read(&path, true).unwrap();
    assert_eq!((rows.ids, rows.colors), (vec![7, 9], vec![Color::new("b", "é\0\"\n"), color("b")]));
    database.close();
    assert!(!data_file::log_of(&path).exists());
    assert_eq!(read(&path, true).unwrap().ids, [7, 9]);
    remove_directory_of(&path);
}

#[test]
fn a_commit_of_which_one_edit_fails_makes_none() {
    let (path, mut database) = new_database("failure");
    let error = database.commit(&[(2, Edit::Append(color("b"))), (1, Edit::Append(color("c")))]).unwrap_err();
    assert_eq!(error.to_string(), "UNIQUE constraint failed: color.id");
    database.begin().unwrap();
    assert_eq!(read(&path, false).unwrap().ids, [1]);
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
    database.commit(&[(2, Edit::Append(color("b")))]).unwrap();
    other.execute(insert, []).unwrap();
    let rows = database.begin().unwrap().expect("it is noticed");
    assert_eq!(rows.colors, [color("a"), color("b"), color("c")]);
    assert!(database.begin().unwrap().is_none());
    other.execute(insert, []).unwrap_err();
    remove_directory_of(&path);
}

#[test]
fn a_log_that_is_cut_short_is_one_of_the_lists_before() {
    let (path, mut database) = new_database("cut");
    let mut lists = vec![vec![color("a")]];
    for (id, name) in [(2, "b"), (3, "c")] {
        database.commit(&[(id, Edit::Append(color(name)))]).unwrap();
        database.begin().unwrap();
        lists.push(read(&path, false).unwrap().colors);
    }
    let log = fs::read(data_file::log_of(&path)).unwrap();
    let copy = path.with_file_name("copy.db");
    fs::copy(&path, &copy).unwrap();
    let mut commits = 0;
    // a frame has 24 bytes and a page of 4,096, behind 32 bytes of the log's own: every byte around its ends, and some between
    let is_tried = |end: &usize| (end + 4120 - 64) % 4120 < 80 || end.is_multiple_of(29) || *end == log.len();
    for end in (0..=log.len()).filter(is_tried) {
        fs::write(data_file::log_of(&copy), &log[..end]).unwrap();
        let colors = read(&copy, false).unwrap().colors;
        assert!(colors == lists[commits] || Some(&colors) == lists.get(commits + 1), "{end}: {colors:?}");
        commits = lists.iter().position(|list| *list == colors).unwrap();
    }
    assert_eq!(commits, 2);
    remove_directory_of(&path);
}

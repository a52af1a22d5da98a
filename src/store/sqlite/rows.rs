//! The table of colors in SQL: its schema and version, how its rows become a list, and how they are
//! written. Knows no files and no locks.

use rusqlite::types::FromSql;
use rusqlite::{Connection, Row};

use super::DatabaseError;
use crate::store::color::NAME_BYTES_MAX;
use crate::store::{Color, ColorList};

/// "colr", which names the program in a database's header (<https://sqlite.org/fileformat2.html>).
pub(super) const APPLICATION_ID: i32 = 0x636f_6c72;

/// The version of the table, in the header's `user_version`. A later program may have a higher one.
pub(super) const VERSION: i32 = 1;

/// The table, of version [`VERSION`]. There has been no other version so far.
///
/// Whoever changes the table raises the version, and adds a step that brings an older FILE up: in
/// `Database::open`, after the check for damage, one transaction alters the table and sets
/// `user_version`. So a kill leaves the step undone or done. [`read_list`] refuses a later version,
/// and by [`check_schema`] any other table. `--dump` and `--check` run no step, since they do not
/// alter FILE: for them, [`read_list`] has to read the table of each older version too, and fill in
/// what that lacks.
pub(super) const SCHEMA: &str =
    "CREATE TABLE color (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value TEXT NOT NULL) STRICT";

pub(super) const INSERT: &str = "INSERT INTO color (id, name, value) VALUES (?1, ?2, ?3)";
/// Takes the parameters of [`INSERT`], of which it does not use the name.
pub(super) const UPDATE: &str = "UPDATE color SET value = ?3 WHERE id = ?1";
pub(super) const DELETE: &str = "DELETE FROM color WHERE id = ?1";
pub(super) const DELETE_ALL: &str = "DELETE FROM color";

/// The first column of the first row that a query finds.
pub(super) fn query_value<T: FromSql>(connection: &Connection, query: &str) -> rusqlite::Result<T> {
    connection.prepare_cached(query)?.query_row([], |row| row.get(0))
}

/// Fails if SQLite finds damage. Reading the list does not find all of it.
pub(super) fn quick_check(connection: &Connection) -> Result<(), DatabaseError> {
    match query_value::<String>(connection, "PRAGMA quick_check(1)")?.as_str() {
        "ok" => Ok(()),
        damage => Err(DatabaseError::Damaged(damage.replace('\n', " "))),
    }
}

/// Reads the list, and finds the [`refusing_indexes`]. A color that `known` has with the same id
/// shares memory with the known one.
pub(super) fn read_list(
    connection: &Connection,
    known: &ColorList,
) -> Result<(ColorList, Vec<String>), DatabaseError> {
    check_ours(connection)?;
    let indexes = refusing_indexes(connection)?;
    let mut statement = connection.prepare("SELECT id, name, value FROM color ORDER BY id")?;
    let rows = statement.query_and_then([], |row| color_in(row, known))?;
    Ok((rows.collect::<Result<_, _>>()?, indexes))
}

/// Fails if the database is that of another program or of a newer version, or if its table is not
/// [`SCHEMA`].
pub(super) fn check_ours(connection: &Connection) -> Result<(), DatabaseError> {
    // `data_path` has checked the header in FILE. A later header may be in FILE-wal.
    if query_value::<i32>(connection, "PRAGMA application_id")? != APPLICATION_ID {
        return Err(DatabaseError::Foreign);
    }
    if query_value::<i32>(connection, "PRAGMA user_version")? > VERSION {
        return Err(DatabaseError::Newer);
    }
    check_schema(connection)
}

/// The color in a row, and its id.
fn color_in(row: &Row<'_>, known: &ColorList) -> Result<(i64, Color), DatabaseError> {
    let id = row.get(0)?;
    let wrong = |reason: &str| {
        DatabaseError::Unusable(format!(
            "the row of table color with id {id} is not a color: {reason}; correct it with sqlite3"
        ))
    };
    let text = |column| row.get_ref(column)?.as_str().map_err(|_| wrong("it is not UTF-8"));
    let name = text(1)?;
    let value = text(2)?;
    if name.len() > NAME_BYTES_MAX {
        return Err(wrong("its name is too long"));
    }
    let color = Color::new(name, value);
    let known = known.get(id).filter(|known| **known == color);
    Ok((id, known.cloned().unwrap_or(color)))
}

/// Fails if the table is not [`SCHEMA`], or has a trigger. A constraint or a trigger may ignore or
/// alter what the service writes without an error. Then the service would acknowledge a change that
/// is not in FILE.
fn check_schema(connection: &Connection) -> Result<(), DatabaseError> {
    let found: String = query_value(
        connection,
        "SELECT ifnull(max(sql), '') FROM sqlite_schema \
         WHERE type IN ('table', 'view') AND name = 'color' COLLATE NOCASE",
    )?;
    // Quotes, spaces and case may differ: ALTER TABLE puts names in quotes, and people type as they
    // like.
    let plain = |sql: &str| sql.to_lowercase().replace(|c: char| c == '"' || c.is_whitespace(), "");
    if plain(&found) != plain(SCHEMA) {
        return Err(DatabaseError::Unusable(format!(
            "its table color is not the one that the service makes; copy the rows into that, with \
             sqlite3: {SCHEMA}"
        )));
    }
    let trigger: Option<String> = query_value(
        connection,
        "SELECT max(name) FROM sqlite_schema \
         WHERE type = 'trigger' AND tbl_name = 'color' COLLATE NOCASE",
    )?;
    match trigger {
        Some(name) => Err(DatabaseError::Unusable(format!(
            "it has the trigger {name:?}, which may change what the service writes; remove it with \
             sqlite3"
        ))),
        None => Ok(()),
    }
}

/// The names of the indexes that may refuse a change: a UNIQUE one refuses duplicates, and an
/// expression of an index, or its WHERE, may fail. All are of other programs. Fails if SQLite
/// cannot maintain an index, so that every change would fail: it lacks a function or collation of
/// another program.
pub(super) fn refusing_indexes(connection: &Connection) -> Result<Vec<String>, DatabaseError> {
    // In index_xinfo, an expression has no number of a column, but -2.
    let mut statement = connection.prepare_cached(
        "SELECT list.name, list.\"unique\" OR list.partial OR EXISTS \
         (SELECT 1 FROM pragma_index_xinfo(list.name) WHERE cid = -2) \
         FROM pragma_index_list('color') AS list ORDER BY list.name",
    )?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let found = found.collect::<Result<Vec<(String, bool)>, _>>()?;
    for (name, _) in &found {
        // SQLite compiles what maintains the index. The statement is not run.
        let reindex = format!("REINDEX main.\"{}\"", name.replace('"', "\"\""));
        connection.prepare(&reindex).map_err(|error| match error.into() {
            DatabaseError::Refused(reason) => DatabaseError::Unusable(format!(
                "with its index {name:?} every change fails: {reason}; remove the index with \
                 sqlite3"
            )),
            error => error,
        })?;
    }
    Ok(found.into_iter().filter_map(|(name, may_refuse)| may_refuse.then_some(name)).collect())
}

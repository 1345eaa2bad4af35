//! The tables, and the indexes that every statement of the service finds its rows by.

use crate::database::{Connection, DatabaseError, Dialect, Transaction};

/// Makes the tables that are not there yet; existing data stays.
///
/// # Errors
/// When the database refuses it.
pub fn create(connection: &mut dyn Connection) -> Result<(), DatabaseError> {
    let dialect = connection.dialect();
    for statement in TABLES.iter().chain(INDEXES) {
        // Of exactly this type, a key of SQLite is the row's own number and needs no index.
        let (key, engine) = match dialect {
            Dialect::Sqlite => ("INTEGER", ""),
            Dialect::MariaDb => ("BIGINT NOT NULL", "ENGINE = InnoDB DEFAULT CHARSET = utf8mb4"),
        };
        let sql = statement.replace("{key}", key).replace("{engine}", engine);
        connection.execute(&sql, &[])?;
    }
    Ok(())
}

/// Removes all mail and accounts.
///
/// # Errors
/// When the database refuses it.
pub fn drop_all(connection: &mut dyn Connection) -> Result<(), DatabaseError> {
    connection.transaction(Transaction::Begin)?;
    for table in ["session", "body", "message", "folder", "account"] {
        connection.execute(&format!("DROP TABLE IF EXISTS {table}"), &[])?;
    }
    connection.transaction(Transaction::Commit)
}

/// Whether there are tables with accounts in them.
pub fn holds_mail(connection: &mut dyn Connection) -> Result<bool, DatabaseError> {
    match connection.query("SELECT id FROM account LIMIT 1", &[]) {
        Ok(rows) => Ok(!rows.is_empty()),
        Err(DatabaseError::Refused { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Bodies have a table of their own, so that listing a folder does not read past them.
const TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS account (
        id {key} PRIMARY KEY, name VARCHAR(64) NOT NULL UNIQUE, class INT NOT NULL) {engine}",
    "CREATE TABLE IF NOT EXISTS folder (
        id {key} PRIMARY KEY, account BIGINT NOT NULL REFERENCES account (id), name VARCHAR(64) NOT NULL,
        UNIQUE (account, name)) {engine}",
    "CREATE TABLE IF NOT EXISTS message (
        id {key} PRIMARY KEY, folder BIGINT NOT NULL REFERENCES folder (id), sender VARCHAR(128) NOT NULL,
        subject VARCHAR(255) NOT NULL, sent BIGINT NOT NULL, bytes BIGINT NOT NULL) {engine}",
    "CREATE TABLE IF NOT EXISTS body (
        message {key} PRIMARY KEY REFERENCES message (id) ON DELETE CASCADE, text MEDIUMTEXT NOT NULL) {engine}",
    "CREATE TABLE IF NOT EXISTS session (
        token VARCHAR(64) NOT NULL PRIMARY KEY, account BIGINT NOT NULL REFERENCES account (id), created BIGINT NOT NULL)
        {engine}",
];

/// A folder is listed latest first, straight from `message_by_folder`; old sessions are found by `session_by_age`.
const INDEXES: &[&str] = &[
    "CREATE INDEX IF NOT EXISTS message_by_folder ON message (folder, sent, id)",
    "CREATE INDEX IF NOT EXISTS session_by_age ON session (created)",
];

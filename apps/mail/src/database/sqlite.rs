//! SQLite, in this process. Readers and one writer work side by side (write-ahead log), and a commit is on the disk
//! before it is acknowledged.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{ErrorCode, params_from_iter};

use super::{Connection, DatabaseError, Dialect, Row, Value};

pub(super) struct Sqlite {
    connection: rusqlite::Connection,
    deadline: Arc<Mutex<Instant>>,
}

impl Sqlite {
    pub(super) fn open(path: &Path, patience: Duration) -> Result<Sqlite, DatabaseError> {
        let mut connection = rusqlite::Connection::open(path).map_err(|error| unreachable(path, &error))?;
        let deadline = Arc::new(Mutex::new(Instant::now() + patience));
        let mut settings = || {
            connection.busy_timeout(patience)?;
            connection.set_prepared_statement_cache_capacity(64);
            connection.execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
                 PRAGMA cache_size = -16384; PRAGMA mmap_size = 1073741824;",
            )?;
            let deadline = Arc::clone(&deadline);
            let is_over = move || Instant::now() > *deadline.lock().expect("nobody panics while holding it");
            connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(is_over))
        };
        settings().map_err(|error| unreachable(path, &error))?;
        Ok(Sqlite { connection, deadline })
    }
}

impl Connection for Sqlite {
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        let run = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            let columns = statement.column_count();
            let mut rows = statement.query(params_from_iter(values))?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let values = (0..columns).map(|column| row.get_ref(column).map(Value::from));
                found.push(values.collect::<Result<Row, _>>()?);
            }
            Ok(found)
        };
        run().map_err(|error| failed(sql, &error))
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DatabaseError> {
        let run = || self.connection.prepare_cached(sql)?.execute(params_from_iter(values));
        run().map(|rows| rows as u64).map_err(|error| failed(sql, &error))
    }

    fn set_deadline(&mut self, deadline: Instant) {
        *self.deadline.lock().expect("nobody panics while holding it") = deadline;
        // A writer that waits for another one is bounded too.
        drop(self.connection.busy_timeout(deadline.saturating_duration_since(Instant::now())));
    }

    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(rusqlite::types::ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(value) => ValueRef::Integer(*value),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

impl From<ValueRef<'_>> for Value {
    fn from(value: ValueRef<'_>) -> Value {
        match value {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(value) => Value::Int(value),
            ValueRef::Real(value) => Value::Int(value as i64),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        }
    }
}

fn unreachable(path: &Path, error: &rusqlite::Error) -> DatabaseError {
    DatabaseError::Unreachable(format!("{}: {error}", path.display()))
}

fn failed(statement: &str, error: &rusqlite::Error) -> DatabaseError {
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => DatabaseError::TimedOut("the statement was stopped".to_owned()),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            DatabaseError::TimedOut("another writer held the database".to_owned())
        }
        Some(
            ErrorCode::CannotOpen
            | ErrorCode::NotADatabase
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::DiskFull
            | ErrorCode::ReadOnly
            | ErrorCode::SystemIoFailure,
        ) => DatabaseError::Unreachable(error.to_string()),
        _ => DatabaseError::Refused { reason: error.to_string(), statement: statement.to_owned() },
    }
}

/// Steps of SQLite's machine between two looks at the clock: about a millisecond.
const STEPS_BETWEEN_LOOKS: i32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_stopped_at_its_deadline() {
        let mut connection = Sqlite::open(Path::new(":memory:"), Duration::from_secs(5)).unwrap();
        connection.set_deadline(Instant::now());
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n";
        let error = connection.query(endless, &[]).unwrap_err();
        assert!(matches!(error, DatabaseError::TimedOut(_)), "{error}");
        connection.set_deadline(Instant::now() + Duration::from_secs(60));
        assert_eq!(connection.query("SELECT 1 + ?", &[2.into()]).unwrap(), [[Value::Int(3)]]);
    }

    #[test]
    fn a_refused_statement_is_named() {
        let mut connection = Sqlite::open(Path::new(":memory:"), Duration::from_secs(5)).unwrap();
        let error = connection.execute("DELETE FROM nothing", &[]).unwrap_err();
        assert!(error.to_string().contains("DELETE FROM nothing") && !error.breaks_connection(), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let error = Sqlite::open(Path::new("/no/such/folder/mail.db"), Duration::from_secs(1)).err().unwrap();
        assert!(error.to_string().contains("/no/such/folder/mail.db"), "{error}");
    }
}

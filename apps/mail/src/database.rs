//! SQL databases as the service sees them: a connection that takes statements with `?` for values, and says in plain
//! words what went wrong.
//!
//! SQLite and MariaDB are behind one small trait, so that every statement of the service is written once.

mod mariadb;
mod sqlite;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// A value in a statement or in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// Text.
    Text(String),
}

/// One row of an answer.
pub type Row = Vec<Value>;

/// An open connection. Statements are short and few, and kept prepared by it.
pub trait Connection: Send {
    /// The rows of a `SELECT`.
    ///
    /// # Errors
    /// What [`DatabaseError`] lists.
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError>;

    /// Changes data; the number of rows that changed. When this returns, the change outlives the process.
    ///
    /// # Errors
    /// What [`DatabaseError`] lists; after [`DatabaseError::Unreachable`] the change may have happened or not.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DatabaseError>;

    /// Statements that begin before `deadline` are given up at it, where the database can do that.
    fn set_deadline(&mut self, deadline: Instant);

    /// Begins, commits: statements between the two happen together or not at all.
    ///
    /// # Errors
    /// What [`DatabaseError`] lists.
    fn transaction(&mut self, step: Transaction) -> Result<(), DatabaseError> {
        let sql = match step {
            Transaction::Begin => "BEGIN",
            Transaction::Commit => "COMMIT",
        };
        self.execute(sql, &[]).map(drop)
    }

    /// What differs between the databases in the definition of tables.
    fn dialect(&self) -> Dialect;
}

/// Beginning or end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    /// Begin.
    Begin,
    /// Commit.
    Commit,
}

/// The two ways to define tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// MariaDB and MySQL.
    MariaDb,
}

/// Where the data is.
#[derive(Clone, PartialEq, Eq)]
pub enum Database {
    /// A file of SQLite, in this process.
    Sqlite(PathBuf),
    /// A server of MariaDB or MySQL, as `mysql://user:password@host:port/name`.
    MariaDb(String),
}

/// Why the database gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseError {
    /// There is no connection, or it broke.
    #[error("the database cannot be reached ({0})")]
    Unreachable(String),
    /// It took longer than the request may.
    #[error("the database did not answer in time ({0})")]
    TimedOut(String),
    /// It refused the statement.
    #[error("the database refused a statement: {reason} (in {statement})")]
    Refused {
        /// What it said.
        reason: String,
        /// The statement.
        statement: String,
    },
}

/// A `--database` that names none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--database {given:?}: {reason}; give mysql://user:password@host:port/name, or sqlite:FILE")]
pub struct DatabaseNameError {
    given: String,
    reason: String,
}

impl Database {
    /// Opens a connection, in at most `patience`; statements on it take at most `patience` each.
    ///
    /// # Errors
    /// When the file cannot be opened, the server does not answer, or it refuses the user.
    pub fn connect(&self, patience: Duration) -> Result<Box<dyn Connection>, DatabaseError> {
        match self {
            Database::Sqlite(path) => Ok(Box::new(sqlite::Sqlite::open(path, patience)?)),
            Database::MariaDb(url) => Ok(Box::new(mariadb::MariaDb::connect(url, patience)?)),
        }
    }
}

impl FromStr for Database {
    type Err = DatabaseNameError;

    fn from_str(text: &str) -> Result<Database, DatabaseNameError> {
        let error = |reason: String| DatabaseNameError { given: text.to_owned(), reason };
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Database::Sqlite(path.into())),
            Some(("mysql", _)) => match mariadb::check(text) {
                Ok(()) => Ok(Database::MariaDb(text.to_owned())),
                Err(reason) => Err(error(reason)),
            },
            _ => Err(error("unknown kind of database".to_owned())),
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Database::Sqlite(path) => write!(f, "SQLite in {}", path.display()),
            // What stands before the `@` holds a password.
            Database::MariaDb(url) => write!(f, "MariaDB at {}", url.rsplit_once('@').map_or(&url[..], |(_, at)| at)),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl DatabaseError {
    /// Whether the connection is of no use any more.
    pub fn breaks_connection(&self) -> bool {
        !matches!(self, DatabaseError::Refused { .. })
    }
}

impl Value {
    /// The number in it; 0 when it is none, which the statements of this program never meet.
    pub fn int(&self) -> i64 {
        match self {
            Value::Int(value) => *value,
            _ => 0,
        }
    }

    /// Takes the text out; empty when it is none.
    pub fn into_text(self) -> String {
        match self {
            Value::Text(text) => text,
            _ => String::new(),
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Value {
        Value::Int(value)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_databases() {
        assert_eq!("sqlite:mail.db".parse::<Database>().unwrap(), Database::Sqlite("mail.db".into()));
        assert!("mysql://mail:pw@127.0.0.1:3306/mail".parse::<Database>().is_ok());
        for bad in ["", "mail.db", "sqlite:", "postgres://x/y", "mysql:", "mysql://127.0.0.1:3306"] {
            let error = bad.parse::<Database>().unwrap_err().to_string();
            assert!(error.contains("give mysql://"), "{error}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let database: Database = "mysql://mail:secret@127.0.0.1:3306/mail".parse().unwrap();
        assert!(!format!("{database:?} {database}").contains("secret"));
    }
}

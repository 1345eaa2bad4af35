//! MariaDB or MySQL over TCP or a Unix socket. Every wait is bounded: connecting, reading, writing, and the statement
//! itself, which the server gives up too, so that nobody works for a client that has left.

use std::error::Error as _;
use std::io;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, DriverError, Error, Opts, OptsBuilder, Params};

use super::{Connection, DatabaseError, Dialect, Row, Transaction, Value};

pub(super) struct MariaDb {
    connection: Conn,
    in_transaction: bool,
}

/// Whether the address can be used.
pub(super) fn check(url: &str) -> Result<(), String> {
    let options = Opts::from_url(url).map_err(|error| error.to_string())?;
    match options.get_db_name() {
        None | Some("") => Err("it names no database after the last /".to_owned()),
        Some(_) => Ok(()),
    }
}

impl MariaDb {
    pub(super) fn connect(url: &str, patience: Duration) -> Result<MariaDb, DatabaseError> {
        let options = Opts::from_url(url).map_err(|error| DatabaseError::Unreachable(error.to_string()))?;
        let limit = format!("SET SESSION max_statement_time = {}", patience.as_secs_f64());
        let options = OptsBuilder::from_opts(options)
            .tcp_connect_timeout(Some(patience))
            .read_timeout(Some(patience))
            .write_timeout(Some(patience))
            .stmt_cache_size(64)
            .prefer_socket(false);
        let mut connection = Conn::new(options).map_err(|error| failed("connecting", error))?;
        // MySQL does not know this variable and bounds reads in another way; the client's own bound holds in any case.
        match connection.query_drop(limit) {
            Ok(()) | Err(Error::MySqlError(_)) => Ok(MariaDb { connection, in_transaction: false }),
            Err(error) => Err(failed("connecting", error)),
        }
    }
}

impl Connection for MariaDb {
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        let into_row = |row: mysql::Row| row.unwrap().into_iter().map(Value::from).collect();
        self.connection.exec_map(sql, bound(values), into_row).map_err(|error| failed(sql, error))
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, DatabaseError> {
        let run = |connection: &mut Conn| match values {
            [] => connection.query_drop(sql),
            _ => connection.exec_drop(sql, bound(values)),
        };
        // Of two statements that wait for each other the server undoes one: alone, that one may be done again.
        let mut again = if self.in_transaction { 0 } else { TRIES_AFTER_DEADLOCK };
        loop {
            match run(&mut self.connection) {
                Err(Error::MySqlError(said)) if said.code == DEADLOCK && again > 0 => again -= 1,
                done => {
                    done.map_err(|error| failed(sql, error))?;
                    return Ok(self.connection.affected_rows());
                }
            }
        }
    }

    fn transaction(&mut self, step: Transaction) -> Result<(), DatabaseError> {
        self.in_transaction = step == Transaction::Begin;
        self.execute(step.sql(), &[]).map(drop)
    }

    fn set_deadline(&mut self, _deadline: Instant) {
        // Its own bounds, set when it was opened, are as long as a request's.
    }

    fn dialect(&self) -> Dialect {
        Dialect::MariaDb
    }
}

impl From<mysql::Value> for Value {
    fn from(value: mysql::Value) -> Value {
        match value {
            mysql::Value::Bytes(bytes) => Value::Text(match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            }),
            mysql::Value::Int(value) => Value::Int(value),
            mysql::Value::UInt(value) => Value::Int(i64::try_from(value).unwrap_or(i64::MAX)),
            // No column of ours is of another type.
            _ => Value::Null,
        }
    }
}

fn bound(values: &[Value]) -> Params {
    let value = |value: &Value| match value {
        Value::Null => mysql::Value::NULL,
        Value::Int(value) => mysql::Value::Int(*value),
        Value::Text(text) => mysql::Value::Bytes(text.as_bytes().to_vec()),
    };
    if values.is_empty() { Params::Empty } else { Params::Positional(values.iter().map(value).collect()) }
}

fn failed(statement: &str, error: Error) -> DatabaseError {
    match &error {
        Error::IoError(io) if is_silence(io) => DatabaseError::TimedOut(NO_ANSWER.to_owned()),
        Error::CodecError(codec) if codec.source().and_then(|e| e.downcast_ref()).is_some_and(is_silence) => {
            DatabaseError::TimedOut(NO_ANSWER.to_owned())
        }
        Error::DriverError(DriverError::ConnectTimeout | DriverError::Timeout) => {
            DatabaseError::TimedOut("no connection within its time".to_owned())
        }
        Error::MySqlError(said) if GAVE_UP.contains(&said.code) => DatabaseError::TimedOut(said.message.clone()),
        Error::MySqlError(said) if !GOING_AWAY.contains(&said.code) => {
            DatabaseError::Refused { reason: said.to_string(), statement: statement.to_owned() }
        }
        _ => DatabaseError::Unreachable(error.to_string()),
    }
}

/// What a bound on reading or writing shows up as.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The statement was undone in favour of another one.
const DEADLOCK: u16 = 1213;

const TRIES_AFTER_DEADLOCK: u32 = 5;

const NO_ANSWER: &str = "no answer over the network";

/// The server stopped the statement: time over (1969), a lock that did not come (1205), killed (1317).
const GAVE_UP: [u16; 3] = [1969, 1205, 1317];

/// The server takes no more: too many connections (1040), shutting down (1053, 1927), killed (1077, 1078, 1079).
const GOING_AWAY: [u16; 6] = [1040, 1053, 1927, 1077, 1078, 1079];

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn nobody_listening_is_unreachable() {
        // A port that nobody else gets meanwhile, and at which nobody listens: it has a client.
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let url = format!("mysql://mail:pw@127.0.0.1:{port}/mail");
        let error = MariaDb::connect(&url, Duration::from_secs(60)).err().unwrap();
        assert!(matches!(error, DatabaseError::Unreachable(_)), "{error}");
    }

    #[test]
    fn a_server_that_says_nothing_times_out() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("mysql://mail:pw@127.0.0.1:{}/mail", silent.local_addr().unwrap().port());
        let error = MariaDb::connect(&url, Duration::from_millis(50)).err().unwrap();
        assert!(matches!(error, DatabaseError::TimedOut(_)), "{error}");
    }
}

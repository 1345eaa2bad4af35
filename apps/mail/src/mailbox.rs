//! Everything the service asks of the database: each function is one request type's statements.
//!
//! Whoever calls names the account; a message or folder of somebody else is as if it did not exist.

use std::time::Duration;

use crate::database::{Connection, DatabaseError, Row, Value};

/// Somebody with mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its number.
    pub id: i64,
    /// The name to sign in with.
    pub name: String,
    /// Class of its requests, 1 is the most important.
    pub class: u8,
}

/// A folder of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Messages in it.
    pub messages: i64,
}

/// A message as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its number.
    pub id: i64,
    /// Who wrote it.
    pub sender: String,
    /// What about.
    pub subject: String,
    /// When, in seconds since 1970.
    pub sent: i64,
    /// How long its text is, bytes.
    pub bytes: i64,
}

/// A part of a folder, latest message first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The folder, and how many messages it has in all.
    pub folder: Folder,
    /// How many later messages come before these.
    pub first: i64,
    /// The messages.
    pub messages: Vec<Summary>,
}

/// A message with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What lists show.
    pub summary: Summary,
    /// The folder it is in.
    pub folder: i64,
    /// Its text.
    pub text: String,
    /// The folders it may be moved to.
    pub folders: Vec<Folder>,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Messages with all the words, latest first, [`MOST_FOUND`] at most.
    pub messages: Vec<Summary>,
    /// How many of the folder's messages were looked at; the rest are older.
    pub looked_at: i64,
    /// The folder, and how many messages it has.
    pub folder: Folder,
}

/// Where a message went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// Into the trash.
    IntoTrash,
    /// It was in the trash: it is gone for good.
    ForGood,
}

/// Begins a session for the account of this name, if there is one. `token` is what the visitor will show from now on.
///
/// # Errors
/// When the database gives no answer.
pub fn sign_in(
    db: &mut dyn Connection,
    name: &str,
    secret: u128,
    now: i64,
) -> Result<Option<(Account, String)>, DatabaseError> {
    let found = db.query("SELECT id, name, class FROM account WHERE name = ?", &[name.into()])?;
    let Some(account) = found.into_iter().next().map(account) else { return Ok(None) };
    let token = format!("{}-{secret:032x}", account.class);
    let values = [token.clone().into(), account.id.into(), now.into()];
    db.execute("INSERT INTO session (token, account, created) VALUES (?, ?, ?)", &values)?;
    let too_old = now - SESSION_LASTS.as_secs() as i64;
    db.execute("DELETE FROM session WHERE created < ?", &[too_old.into()])?;
    Ok(Some((account, token)))
}

/// Ends a session.
///
/// # Errors
/// When the database gives no answer.
pub fn sign_out(db: &mut dyn Connection, token: &str) -> Result<(), DatabaseError> {
    db.execute("DELETE FROM session WHERE token = ?", &[token.into()]).map(drop)
}

/// Whose session this is.
///
/// # Errors
/// When the database gives no answer.
pub fn visitor(db: &mut dyn Connection, token: &str) -> Result<Option<Account>, DatabaseError> {
    let sql = "SELECT a.id, a.name, a.class FROM session s JOIN account a ON a.id = s.account WHERE s.token = ?";
    Ok(db.query(sql, &[token.into()])?.into_iter().next().map(account))
}

/// An account's folders, with the number of messages in each.
///
/// # Errors
/// When the database gives no answer.
pub fn folders(db: &mut dyn Connection, account: i64) -> Result<Vec<Folder>, DatabaseError> {
    let sql = "SELECT f.id, f.name, (SELECT COUNT(*) FROM message m WHERE m.folder = f.id) \
               FROM folder f WHERE f.account = ? ORDER BY f.id";
    Ok(db.query(sql, &[account.into()])?.into_iter().map(folder).collect())
}

/// `count` messages of a folder, after the `first` latest ones.
///
/// # Errors
/// When the database gives no answer.
pub fn messages(
    db: &mut dyn Connection,
    account: i64,
    folder: i64,
    first: i64,
    count: i64,
) -> Result<Option<Listing>, DatabaseError> {
    let Some(folder) = one_folder(db, account, folder)? else { return Ok(None) };
    let sql = "SELECT id, sender, subject, sent, bytes FROM message WHERE folder = ? \
               ORDER BY sent DESC, id DESC LIMIT ? OFFSET ?";
    let rows = db.query(sql, &[folder.id.into(), count.into(), first.into()])?;
    Ok(Some(Listing { folder, first, messages: rows.into_iter().map(summary).collect() }))
}

/// One message, and the folders it may go to.
///
/// # Errors
/// When the database gives no answer.
pub fn message(db: &mut dyn Connection, account: i64, id: i64) -> Result<Option<Message>, DatabaseError> {
    let sql = "SELECT m.id, m.sender, m.subject, m.sent, m.bytes, m.folder, b.text FROM message m \
               JOIN folder f ON f.id = m.folder JOIN body b ON b.message = m.id WHERE m.id = ? AND f.account = ?";
    let Some(mut row) = db.query(sql, &[id.into(), account.into()])?.into_iter().next() else { return Ok(None) };
    let text = row.pop().map(Value::into_text).unwrap_or_default();
    let folder = row.pop().map_or(0, |folder| folder.int());
    let named = "SELECT id, name, 0 FROM folder WHERE account = ? ORDER BY id";
    let folders = db.query(named, &[account.into()])?.into_iter().map(self::folder).collect();
    Ok(Some(Message { summary: summary(row), folder, text, folders }))
}

/// Moves a message into the trash, or removes it for good if it is there already.
///
/// # Errors
/// When the database gives no answer.
pub fn delete(db: &mut dyn Connection, account: i64, id: i64) -> Result<Option<Deleted>, DatabaseError> {
    let sql = "SELECT m.folder, t.id FROM message m JOIN folder f ON f.id = m.folder \
               JOIN folder t ON t.account = f.account AND t.name = ? WHERE m.id = ? AND f.account = ?";
    let found = db.query(sql, &[TRASH.into(), id.into(), account.into()])?;
    let Some((folder, trash)) = found.first().map(|row| (row[0].int(), row[1].int())) else { return Ok(None) };
    // The folder is named again: a message that was moved meanwhile is not what the visitor looked at.
    let (changed, deleted) = if folder == trash {
        let sql = "DELETE FROM message WHERE id = ? AND folder = ?";
        // The text goes with it by its reference, but a MySQL ignores those within column definitions.
        let gone = db.execute(sql, &[id.into(), folder.into()])?;
        if gone > 0 {
            db.execute("DELETE FROM body WHERE message = ?", &[id.into()])?;
        }
        (gone, Deleted::ForGood)
    } else {
        let sql = "UPDATE message SET folder = ? WHERE id = ? AND folder = ?";
        (db.execute(sql, &[trash.into(), id.into(), folder.into()])?, Deleted::IntoTrash)
    };
    Ok((changed > 0).then_some(deleted))
}

/// Moves a message to another folder; the folder's name, if there are both.
///
/// # Errors
/// When the database gives no answer.
pub fn refile(db: &mut dyn Connection, account: i64, id: i64, to: i64) -> Result<Option<String>, DatabaseError> {
    let sql = "SELECT m.folder, t.name FROM message m JOIN folder f ON f.id = m.folder \
               JOIN folder t ON t.account = f.account WHERE m.id = ? AND f.account = ? AND t.id = ?";
    let found = db.query(sql, &[id.into(), account.into(), to.into()])?;
    let Some(row) = found.into_iter().next() else { return Ok(None) };
    let (from, name) = (row[0].int(), row[1].clone().into_text());
    if from == to {
        return Ok(Some(name));
    }
    let sql = "UPDATE message SET folder = ? WHERE id = ? AND folder = ?";
    let moved = db.execute(sql, &[to.into(), id.into(), from.into()])?;
    Ok((moved > 0).then_some(name))
}

/// Messages of a folder in which every word occurs in sender, subject or text, whatever its case. Every text is read:
/// this is the expensive request. `share` of the folder's messages are looked at, the latest.
///
/// # Errors
/// When the database gives no answer.
pub fn search(
    db: &mut dyn Connection,
    account: i64,
    folder: i64,
    words: &str,
    share: f64,
) -> Result<Option<Found>, DatabaseError> {
    let Some(folder) = one_folder(db, account, folder)? else { return Ok(None) };
    let looked_at = (folder.messages as f64 * share).ceil() as i64;
    let mut sql = String::from(
        "SELECT m.id, m.sender, m.subject, m.sent, m.bytes FROM (SELECT id, sender, subject, sent, bytes FROM message \
         WHERE folder = ? ORDER BY sent DESC, id DESC LIMIT ?) m JOIN body b ON b.message = m.id WHERE 1 = 1",
    );
    let mut values = vec![folder.id.into(), looked_at.into()];
    for word in words.split_whitespace().take(MOST_WORDS) {
        let like = format!("%{}%", escape_like(word));
        sql += " AND (m.subject LIKE ? ESCAPE '!' OR m.sender LIKE ? ESCAPE '!' OR b.text LIKE ? ESCAPE '!')";
        values.extend([like.as_str().into(), like.as_str().into(), like.into()]);
    }
    sql += " ORDER BY m.sent DESC, m.id DESC LIMIT ?";
    values.push(MOST_FOUND.into());
    let messages = db.query(&sql, &values)?.into_iter().map(summary).collect();
    Ok(Some(Found { messages, looked_at, folder }))
}

/// The folder deleted messages go to.
pub const TRASH: &str = "Trash";

/// Messages a search shows at most.
pub const MOST_FOUND: i64 = 100;

/// Words of a search at most; the rest are ignored.
pub const MOST_WORDS: usize = 5;

/// How long a visitor stays signed in.
pub const SESSION_LASTS: Duration = Duration::from_secs(7 * 24 * 3600);

fn one_folder(db: &mut dyn Connection, account: i64, id: i64) -> Result<Option<Folder>, DatabaseError> {
    let sql = "SELECT f.id, f.name, (SELECT COUNT(*) FROM message m WHERE m.folder = f.id) \
               FROM folder f WHERE f.id = ? AND f.account = ?";
    Ok(db.query(sql, &[id.into(), account.into()])?.into_iter().next().map(folder))
}

fn escape_like(word: &str) -> String {
    word.chars().flat_map(|c| matches!(c, '%' | '_' | '!').then_some('!').into_iter().chain([c])).collect()
}

fn account(row: Row) -> Account {
    let [id, name, class] = columns(row);
    Account { id: id.int(), name: name.into_text(), class: u8::try_from(class.int()).unwrap_or(u8::MAX) }
}

fn folder(row: Row) -> Folder {
    let [id, name, messages] = columns(row);
    Folder { id: id.int(), name: name.into_text(), messages: messages.int() }
}

fn summary(row: Row) -> Summary {
    let [id, sender, subject, sent, bytes] = columns(row);
    Summary {
        id: id.int(),
        sender: sender.into_text(),
        subject: subject.into_text(),
        sent: sent.int(),
        bytes: bytes.int(),
    }
}

fn columns<const N: usize>(row: Row) -> [Value; N] {
    row.try_into().unwrap_or_else(|row: Row| panic!("a statement gave {} columns in place of {N}", row.len()))
}

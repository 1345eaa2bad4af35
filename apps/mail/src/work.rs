//! What the stages do: from a request to its page.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::database::{Connection, DatabaseError};
use crate::mailbox::{self, Account, Deleted};
use crate::pages;
use crate::pool::{Again, Pool};
use crate::render;
use crate::request::{Answer, Call, Request, Trouble};

/// Answers requests. Clones share the connections.
#[derive(Clone)]
pub struct Work {
    pool: Pool,
    /// Points of a picture are looked at so often at full quality.
    render_samples: u32,
}

/// An answer, and how good it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// The answer.
    pub answer: Answer,
    /// Below 1 when the answer is cheaper than the best, and the cost followed.
    pub quality: f64,
}

impl Work {
    /// Work on these connections.
    pub fn new(pool: Pool, render_samples: u32) -> Work {
        Work { pool, render_samples }
    }

    /// The connections.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Answers one request, as well as `quality` (of the stage) and the request's own allow.
    ///
    /// # Errors
    /// What [`Trouble`] lists, but for being busy.
    pub async fn answer(&self, request: Request, quality: f64) -> Result<Served, Trouble> {
        let quality = quality.min(request.quality).clamp(0.0, 1.0);
        match request.call {
            Call::Static { name } => {
                let (media, bytes) = pages::file(&name).ok_or(Trouble::Missing("file"))?;
                Ok(Served { answer: Answer::Bytes { media, bytes: bytes.to_vec() }, quality: 1.0 })
            }
            Call::Render { name } => {
                let samples = self.render_samples;
                let work = tokio::task::spawn_blocking(move || render::picture(&name, samples, quality));
                let bytes = work.await.map_err(|error| Trouble::Failed(error.to_string()))?;
                Ok(Served { answer: Answer::Bytes { media: "image/png", bytes }, quality })
            }
            _ => self.ask(request, quality).await,
        }
    }

    /// Requests that need the database.
    async fn ask(&self, request: Request, quality: f64) -> Result<Served, Trouble> {
        let deadline = request.deadline;
        let again = match request.call {
            Call::Folders | Call::Messages { .. } | Call::Message { .. } | Call::Search { .. } => Again::Allowed,
            _ => Again::Forbidden,
        };
        let ask = move |db: &mut dyn Connection| data(db, &request, quality);
        self.pool.run(deadline, again, ask, |data| data.and_then(write)).await?
    }
}

/// What came from the database, before it is made a page.
enum Data {
    SignedIn(String),
    SignedOut,
    Folders(Account, Vec<mailbox::Folder>),
    Messages(Account, mailbox::Listing, Option<i64>, f64),
    Message(Account, Box<mailbox::Message>),
    Found(Account, mailbox::Found, String, f64),
    Done(String),
}

/// The statements of a request. The outer error breaks off; the inner one is an answer, too.
fn data(db: &mut dyn Connection, request: &Request, quality: f64) -> Result<Result<Data, Trouble>, DatabaseError> {
    match &request.call {
        Call::SignIn { name } => {
            let found = mailbox::sign_in(db, name, rand::random(), now())?;
            return Ok(found
                .map(|(_, token)| Data::SignedIn(token))
                .ok_or_else(|| Trouble::NoSuchAccount(name.clone())));
        }
        Call::SignOut => {
            request.token.as_deref().map_or(Ok(()), |token| mailbox::sign_out(db, token))?;
            return Ok(Ok(Data::SignedOut));
        }
        _ => {}
    }
    let visitor = request.token.as_deref().map_or(Ok(None), |token| mailbox::visitor(db, token))?;
    let Some(account) = visitor else { return Ok(Err(Trouble::SignedOut)) };
    match request.call {
        Call::Delete { .. } | Call::Refile { .. } => change(db, &account, &request.call),
        _ => read(db, account, &request.call, quality),
    }
}

fn read(
    db: &mut dyn Connection,
    account: Account,
    call: &Call,
    quality: f64,
) -> Result<Result<Data, Trouble>, DatabaseError> {
    let id = account.id;
    Ok(match call {
        Call::Messages { folder, first, count } => {
            let rows = shown(*count, quality);
            let found = mailbox::messages(db, id, *folder, *first, rows)?;
            let quality = if count.is_none() { quality } else { 1.0 };
            found.map(|listing| Data::Messages(account, listing, *count, quality)).ok_or(Trouble::Missing("folder"))
        }
        Call::Message { id: message } => {
            let found = mailbox::message(db, id, *message)?;
            found.map(|message| Data::Message(account, Box::new(message))).ok_or(Trouble::Missing("message"))
        }
        Call::Search { folder, words } => {
            let found = mailbox::search(db, id, *folder, words, quality)?;
            found.map(|found| Data::Found(account, found, words.clone(), quality)).ok_or(Trouble::Missing("folder"))
        }
        _ => Ok(Data::Folders(account, mailbox::folders(db, id)?)),
    })
}

fn change(db: &mut dyn Connection, account: &Account, call: &Call) -> Result<Result<Data, Trouble>, DatabaseError> {
    let (id, done) = match *call {
        Call::Delete { id } => {
            let words = |deleted| match deleted {
                Deleted::IntoTrash => "trashed".to_owned(),
                Deleted::ForGood => "deleted".to_owned(),
            };
            (id, mailbox::delete(db, account.id, id)?.map(words))
        }
        Call::Refile { id, folder } => {
            (id, mailbox::refile(db, account.id, id, folder)?.map(|_| format!("moved-to-{folder}")))
        }
        _ => (0, None),
    };
    Ok(done.map(|what| Data::Done(format!("/folders?done={what}&message={id}"))).ok_or(Trouble::Missing("message")))
}

/// Rows of a list: as many as asked for, or all; at less than full quality that share of the longest list there is.
fn shown(count: Option<i64>, quality: f64) -> i64 {
    match count {
        Some(count) => count.clamp(1, LONGEST_LIST),
        None => ((LONGEST_LIST as f64 * quality) as i64).max(pages::PER_PAGE),
    }
}

fn write(data: Data) -> Result<Served, Trouble> {
    let full = |answer| Ok(Served { answer, quality: 1.0 });
    match data {
        Data::SignedIn(token) => full(Answer::SignedIn { token }),
        Data::SignedOut => full(Answer::SignedOut),
        Data::Done(see) => full(Answer::Done { see }),
        Data::Folders(account, folders) => full(Answer::Page(pages::folders(&account, &folders))),
        Data::Message(account, message) => full(Answer::Page(pages::message(&account, &message))),
        Data::Messages(account, listing, count, quality) => {
            Ok(Served { answer: Answer::Page(pages::messages(&account, &listing, count)), quality })
        }
        Data::Found(account, found, words, quality) => {
            Ok(Served { answer: Answer::Page(pages::found(&account, &found, &words)), quality })
        }
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// The longest list of messages on one page.
const LONGEST_LIST: i64 = 20_000;

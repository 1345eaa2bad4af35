//! What can be asked of the service: request types, and one request with what the service must know of its sender.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

/// The request types. Each has a stage of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Sign in or out.
    Login,
    /// List an account's folders.
    ListFolders,
    /// List a folder's messages.
    ListMessages,
    /// Show one message.
    ShowMessage,
    /// Delete a message.
    Delete,
    /// Move a message to another folder.
    Refile,
    /// Search a folder's texts.
    Search,
    /// Draw a picture: all processor, no database.
    Render,
    /// Style sheet and logo, from memory.
    Static,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Begin a session.
    SignIn {
        /// The account's name.
        name: String,
    },
    /// End the session.
    SignOut,
    /// The folders.
    Folders,
    /// A part of a folder.
    Messages {
        /// The folder's number.
        folder: i64,
        /// Latest messages to leave out.
        first: i64,
        /// Messages to show; all when absent.
        count: Option<i64>,
    },
    /// One message.
    Message {
        /// Its number.
        id: i64,
    },
    /// Delete it.
    Delete {
        /// The message's number.
        id: i64,
    },
    /// Move it.
    Refile {
        /// The message's number.
        id: i64,
        /// The other folder's number.
        folder: i64,
    },
    /// Search a folder.
    Search {
        /// The folder's number.
        folder: i64,
        /// Words that must occur.
        words: String,
    },
    /// Draw the picture that belongs to a name.
    Render {
        /// The name.
        name: String,
    },
    /// A file of the program's own.
    Static {
        /// Its name.
        name: String,
    },
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What is asked.
    pub call: Call,
    /// The session's token, where there is one.
    pub token: Option<String>,
    /// Class, 1 is the most important.
    pub class: u8,
    /// What the sentry asks for in `Tidegate-Quality`, 0 to 1.
    pub quality: f64,
    /// When the answer must be there.
    pub deadline: Instant,
}

impl Kind {
    /// Every type.
    pub const ALL: [Kind; 9] = [
        Kind::Login,
        Kind::ListFolders,
        Kind::ListMessages,
        Kind::ShowMessage,
        Kind::Delete,
        Kind::Refile,
        Kind::Search,
        Kind::Render,
        Kind::Static,
    ];

    /// Its name, also that of its stage.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Login => "login",
            Kind::ListFolders => "list-folders",
            Kind::ListMessages => "list-messages",
            Kind::ShowMessage => "show-message",
            Kind::Delete => "delete",
            Kind::Refile => "refile",
            Kind::Search => "search",
            Kind::Render => "render",
            Kind::Static => "static",
        }
    }

    /// Whether it asks the database.
    pub fn needs_database(self) -> bool {
        !matches!(self, Kind::Render | Kind::Static)
    }
}

impl Call {
    /// Its type.
    pub fn kind(&self) -> Kind {
        match self {
            Call::SignIn { .. } | Call::SignOut => Kind::Login,
            Call::Folders => Kind::ListFolders,
            Call::Messages { .. } => Kind::ListMessages,
            Call::Message { .. } => Kind::ShowMessage,
            Call::Delete { .. } => Kind::Delete,
            Call::Refile { .. } => Kind::Refile,
            Call::Search { .. } => Kind::Search,
            Call::Render { .. } => Kind::Render,
            Call::Static { .. } => Kind::Static,
        }
    }
}

/// What a request gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A page.
    Page(String),
    /// Something else to show, which a browser may keep.
    Bytes {
        /// Its media type.
        media: &'static str,
        /// What it is.
        bytes: Vec<u8>,
    },
    /// Signed in: from now on the visitor shows this token.
    SignedIn {
        /// The session's token.
        token: String,
    },
    /// Signed out.
    SignedOut,
    /// It is done; the visitor is sent to another page.
    Done {
        /// The page's path.
        see: String,
    },
}

/// Why a request does not get what it asked for.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Trouble {
    /// The stage takes no more.
    #[error("the service is busy: {why}")]
    Busy {
        /// The stage that refused.
        stage: String,
        /// The reason's name, for `Tidegate-Decision`.
        reason: &'static str,
        /// The reason in words.
        why: String,
        /// When it is worth while to try again.
        retry_after: Duration,
    },
    /// The visitor is not signed in.
    #[error("not signed in")]
    SignedOut,
    /// Nobody has this name.
    #[error("there is no account of the name {0:?}")]
    NoSuchAccount(String),
    /// There is no such thing, or it belongs to somebody else.
    #[error("there is no such {0} in your mail")]
    Missing(&'static str),
    /// The request itself makes no sense.
    #[error("{0}")]
    Bad(String),
    /// The database gave no answer.
    #[error(transparent)]
    Database(#[from] crate::database::DatabaseError),
    /// A part of the service failed: a bug.
    #[error("the service failed: {0}")]
    Failed(String),
}

//! Settings of a live run on the mail service.

use serde::{Deserialize, Serialize};

/// The mail service of a live run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mail {
    /// Its database.
    pub database: MailDatabase,
    /// Accounts; users share them in turn.
    pub accounts: u32,
    /// Messages in the largest inbox.
    pub largest: u32,
    /// Messages in the smallest.
    pub smallest: u32,
    /// Tail index of the inboxes' sizes: the smaller, the more large ones.
    pub tail: f64,
    /// Mean length of a message's text.
    pub text_bytes: u32,
    /// Connections to the database.
    pub connections: u32,
    /// Workers of each stage that asks it; as many as connections when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Looks at each point of a picture: what drawing one costs.
    pub render_samples: u32,
    /// Processors that the service and its database share; all when absent, or where there are no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processors: Option<u32>,
}

/// Where the mail is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MailDatabase {
    /// A MariaDB of its own.
    #[default]
    Mariadb,
    /// A file.
    Sqlite,
}

impl Default for Mail {
    fn default() -> Mail {
        Mail {
            database: MailDatabase::Mariadb,
            accounts: 16,
            largest: 12_794,
            smallest: 1,
            tail: 0.5,
            text_bytes: 2_000,
            connections: 8,
            workers: None,
            render_samples: 16,
            processors: None,
        }
    }
}

impl Mail {
    /// What is wrong, in words.
    pub(super) fn problems(&self) -> Vec<&'static str> {
        let amounts = self.accounts > 0 && self.smallest > 0 && self.tail > 0.0 && self.text_bytes > 0;
        let pools = (1..=1000).contains(&self.connections) && (1..=10_000).contains(&self.render_samples);
        let demands = [
            (amounts, "its `accounts`, `smallest`, `tail` and `text_bytes` must be more than 0"),
            (self.smallest <= self.largest, "its `smallest` must be at most its `largest`"),
            (self.processors != Some(0), "its `processors` must be at least 1"),
            (self.workers.is_none_or(|n| (1..=1000).contains(&n)), "its `workers` must be 1 to 1000"),
            (pools, "`connections` must be 1 to 1000, `render_samples` 1 to 10000"),
        ];
        demands.into_iter().filter(|(holds, _)| !holds).map(|(_, problem)| problem).collect()
    }
}

//! Mail to work with: accounts whose inboxes have from one to very many messages.
//!
//! The size of an inbox follows a Pareto law cut off at both ends, taken at evenly spread quantiles: a few accounts
//! have nearly all the mail, and the smallest and the largest size occur at any number of accounts. Texts are made of
//! a vocabulary whose words are as unevenly used as those of a language (Zipf). Equal options and seeds give equal
//! mail.

mod text;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::database::{Connection, DatabaseError, Transaction, Value};
use crate::mailbox::TRASH;
use crate::schema;

use text::Writer;

/// How much mail.
#[derive(Debug, Clone, PartialEq)]
pub struct Mail {
    /// Accounts, named `user1` and so on.
    pub accounts: u32,
    /// Messages in the largest inbox; the paper has 12,794.
    pub largest: u32,
    /// Tail index of the sizes: the smaller, the more uneven. At 0.5 the mean is the root of `largest`.
    pub tail: f64,
    /// Mean length of a text, bytes.
    pub text_bytes: u32,
    /// Classes the accounts are dealt into in turn, 1 is the most important.
    pub classes: u8,
    /// Seed of all randomness.
    pub seed: u64,
}

/// How much was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Made {
    /// Accounts.
    pub accounts: u64,
    /// Messages.
    pub messages: u64,
    /// Bytes of text.
    pub bytes: u64,
}

/// Options that make no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GenerateError {
    /// A number out of its range.
    #[error("--{key} is {value}: it must be {must}")]
    Option {
        /// The option.
        key: &'static str,
        /// As given.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
    /// The database gave no answer.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl Default for Mail {
    fn default() -> Mail {
        Mail { accounts: 128, largest: 12_794, tail: 0.5, text_bytes: 2_000, classes: 2, seed: 1 }
    }
}

impl Mail {
    /// The size of every inbox, by account.
    pub fn sizes(&self) -> Vec<u32> {
        let n = self.accounts;
        let mut sizes: Vec<u32> = (0..n).map(|i| self.size_at(f64::from(i) / f64::from((n - 1).max(1)))).collect();
        // Dealt at random, so that neighbours in number are not neighbours in size.
        let mut rng = self.rng(0);
        for last in (1..sizes.len()).rev() {
            sizes.swap(last, rng.random_range(0..=last));
        }
        sizes
    }

    /// Puts all of it into an empty database, in one transaction for each account.
    ///
    /// # Errors
    /// When an option makes no sense, or the database gives no answer.
    pub fn store(&self, db: &mut dyn Connection, mut tell: impl FnMut(Made)) -> Result<Made, GenerateError> {
        self.check()?;
        schema::create(db)?;
        let mut made = Made::default();
        let writer = Writer::new();
        for (index, size) in self.sizes().into_iter().enumerate() {
            db.transaction(Transaction::Begin)?;
            self.store_account(db, &writer, index as i64 + 1, size, &mut made)?;
            db.transaction(Transaction::Commit)?;
            tell(made);
        }
        Ok(made)
    }

    fn store_account(
        &self,
        db: &mut dyn Connection,
        writer: &Writer,
        account: i64,
        size: u32,
        made: &mut Made,
    ) -> Result<(), DatabaseError> {
        let mut rng = self.rng(account as u64);
        let class = (account - 1) % i64::from(self.classes) + 1;
        let values = [account.into(), format!("user{account}").into(), class.into()];
        db.execute("INSERT INTO account (id, name, class) VALUES (?, ?, ?)", &values)?;
        made.accounts += 1;
        // The archive is small in comparison: it is there to move messages to and from.
        for (at, (name, messages)) in [("Inbox", size), ("Archive", size.min(20)), (TRASH, 0)].into_iter().enumerate() {
            let folder = account * FOLDERS + at as i64;
            let values = [folder.into(), account.into(), name.into()];
            db.execute("INSERT INTO folder (id, account, name) VALUES (?, ?, ?)", &values)?;
            self.store_messages(db, writer, &mut rng, folder, messages, made)?;
        }
        Ok(())
    }

    fn store_messages(
        &self,
        db: &mut dyn Connection,
        writer: &Writer,
        rng: &mut Xoshiro256PlusPlus,
        folder: i64,
        messages: u32,
        made: &mut Made,
    ) -> Result<(), DatabaseError> {
        let mut left = messages;
        while left > 0 {
            let rows = left.min(ROWS_AT_ONCE);
            let (mut heads, mut bodies) = (Vec::new(), Vec::new());
            for row in 0..rows {
                made.messages += 1;
                let (id, text) = (Value::from(made.messages as i64), writer.text(rng, self.text_bytes));
                // Latest first, one every few hours, counted back from the same day for every folder.
                let age = i64::from(messages - left + row) * 9_000 + rng.random_range(0..9_000);
                made.bytes += text.len() as u64;
                heads.extend([id.clone(), folder.into(), writer.sender(rng).into(), writer.subject(rng).into()]);
                heads.extend([Value::from(NEWEST - age), Value::from(text.len() as i64)]);
                bodies.extend([id, text.into()]);
            }
            insert(db, "message (id, folder, sender, subject, sent, bytes)", 6, &heads)?;
            insert(db, "body (message, text)", 2, &bodies)?;
            left -= rows;
        }
        Ok(())
    }

    /// The size that a share `quantile` of inboxes do not exceed.
    fn size_at(&self, quantile: f64) -> u32 {
        let largest = f64::from(self.largest);
        let cut_off = 1.0 - largest.powf(-self.tail);
        (1.0 - quantile * cut_off).powf(-1.0 / self.tail).clamp(1.0, largest).round() as u32
    }

    fn rng(&self, stream: u64) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(self.seed ^ stream.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn check(&self) -> Result<(), GenerateError> {
        let checks = [
            ("accounts", f64::from(self.accounts), 1.0, 1e6, "from 1 to 1,000,000"),
            ("largest", f64::from(self.largest), 1.0, 1e6, "from 1 to 1,000,000"),
            ("tail", self.tail, 0.05, 10.0, "from 0.05 to 10"),
            ("text-bytes", f64::from(self.text_bytes), 10.0, 1e6, "from 10 to 1,000,000"),
            ("classes", f64::from(self.classes), 1.0, 9.0, "from 1 to 9"),
        ];
        let wrong = checks.into_iter().find(|(_, value, least, most, _)| !(least..=most).contains(&value));
        wrong.map_or(Ok(()), |(key, value, _, _, must)| Err(GenerateError::Option { key, value, must }))
    }
}

fn insert(db: &mut dyn Connection, into: &str, columns: usize, values: &[Value]) -> Result<(), DatabaseError> {
    let row = format!("({})", vec!["?"; columns].join(","));
    let rows = vec![row; values.len() / columns].join(",");
    db.execute(&format!("INSERT INTO {into} VALUES {rows}"), values).map(drop)
}

/// Rows in one statement: fewer round trips, within both databases' limits on values.
const ROWS_AT_ONCE: u32 = 250;

/// Numbers of folders set aside for each account.
const FOLDERS: i64 = 8;

/// When the latest message was sent: 1 June 2026, noon.
const NEWEST: i64 = 1_780_315_200;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::database::Database;

    fn stored(mail: &Mail) -> (Vec<Vec<Value>>, Made) {
        let mut db = Database::Sqlite(":memory:".into()).connect(Duration::from_secs(60)).unwrap();
        let made = mail.store(&mut *db, |_| ()).unwrap();
        let sql = "SELECT m.id, m.folder, m.sent, m.subject, b.text FROM message m JOIN body b ON b.message = m.id";
        (db.query(sql, &[]).unwrap(), made)
    }

    #[test]
    fn sizes_reach_from_one_to_the_largest_and_have_a_heavy_tail() {
        let mut sizes = Mail::default().sizes();
        sizes.sort_unstable();
        assert_eq!((sizes[0], *sizes.last().unwrap()), (1, 12_794));
        let half: u32 = sizes[..64].iter().sum();
        let all: u32 = sizes.iter().sum();
        assert!(f64::from(half) < 0.02 * f64::from(all), "half of the accounts have {half} of {all}");
    }

    #[test]
    fn equal_seeds_give_equal_mail_and_others_other() {
        let mail = Mail { accounts: 5, largest: 300, text_bytes: 200, ..Mail::default() };
        let (rows, made) = stored(&mail);
        assert_eq!(made.messages as usize, rows.len());
        assert!(made.messages > 300 && made.accounts == 5, "{made:?}");
        assert_eq!(stored(&mail).0, rows);
        assert_ne!(stored(&Mail { seed: 2, ..mail }).0, rows);
    }

    #[test]
    fn options_out_of_range_are_named() {
        let mut db = Database::Sqlite(":memory:".into()).connect(Duration::from_secs(60)).unwrap();
        let none = Mail { accounts: 0, ..Mail::default() };
        assert!(none.store(&mut *db, |_| ()).unwrap_err().to_string().contains("--accounts is 0"));
        let tail = Mail { tail: f64::NAN, ..Mail::default() };
        assert!(tail.store(&mut *db, |_| ()).unwrap_err().to_string().contains("--tail"));
    }
}

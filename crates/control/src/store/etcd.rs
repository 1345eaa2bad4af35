//! etcd, for several control planes of which one leads.
//!
//! ```text
//! PREFIX/leader                 who leads; gone when its lease ends
//! PREFIX/term                   counts up with every election
//! PREFIX/meta                   format, id, origin, the first input after the last state, and its pieces
//! PREFIX/state/FIRST-PIECE      a state, packed, in pieces that etcd takes
//! PREFIX/journal/NUMBER         inputs since
//! PREFIX/audit/NUMBER           records
//! ```
//!
//! *Intuition.* Every write is one transaction that holds only while this one leads ([`EtcdSeat::guard`]) and only if
//! the input's number is not taken. Records go with the next input: until then they can be made again from the journal.
//!
//! *Awkward cases.* A write that was not answered may have been carried out. It is given again, finds its own number
//! taken by the same text, and counts as written. etcd takes 1.5 MB and 128 operations at once, so that a large state
//! goes in pieces first, and becomes valid by the one transaction that names it and drops the journal before it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_provision::Site;

use super::packed::{pack, unpack};
use super::{EVERY, FORMAT, StoreError, in_office, numbered};
use crate::election::{EtcdSeat, said};
use crate::etcd::{Entry, Etcd, Outcome, Txn};
use crate::plane::{Input, Plane};

/// Bytes of a piece of a state.
const PIECE: usize = 512 * 1024;
/// The most bytes of an input: with base64 and records still below what etcd takes.
const INPUT: usize = 768 * 1024;
/// Records that go with one transaction: at most so many, and so many bytes.
const WITH: usize = 100;
const WITH_BYTES: usize = 256 * 1024;
/// Records that are kept.
const KEPT: usize = 50_000;
/// Inputs and records that are read at once.
const PAGE: usize = 50;
/// Ends every key of a kind: after all digits.
const END: char = '~';

#[derive(Debug)]
pub(super) struct EtcdStore {
    etcd: Etcd,
    prefix: String,
    /// `None`: it is only looked.
    seat: Option<EtcdSeat>,
    /// The number of the next input.
    next: u64,
    meta: Meta,
    /// Records that are not written yet, oldest first.
    unsaved: Vec<Value>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Meta {
    format: u64,
    id: u64,
    /// Wall time at the plane's origin, nanoseconds since 1970.
    origin: u64,
    /// The number of the first input after the last state.
    since: u64,
    /// Its pieces; 0: there is no state yet.
    pieces: usize,
}

impl EtcdStore {
    pub(super) fn lead(seat: EtcdSeat, prefix: &str, wall: u64) -> Result<EtcdStore, StoreError> {
        let fresh = Meta { format: FORMAT, id: tidegate_wire::random_u64(), origin: wall, since: 1, pieces: 0 };
        let etcd = seat.etcd().clone();
        let mut store =
            EtcdStore { etcd, prefix: prefix.to_owned(), seat: Some(seat), next: 1, meta: fresh, unsaved: Vec::new() };
        match store.etcd.get(&store.key("meta"))? {
            Some(entry) => store.known(&entry)?,
            None => store.write(|txn, store| txn.put(&store.key("meta"), &store.meta_text()))?,
        }
        Ok(store)
    }

    pub(super) fn look(etcd: &Etcd, prefix: &str) -> Result<EtcdStore, StoreError> {
        let meta = Meta { format: FORMAT, id: 0, origin: 0, since: 1, pieces: 0 };
        let (etcd, prefix) = (etcd.clone(), prefix.to_owned());
        let mut store = EtcdStore { etcd, prefix, seat: None, next: 1, meta, unsaved: Vec::new() };
        let Some(entry) = store.etcd.get(&store.key("meta"))? else {
            return Err(StoreError::Missing { place: store.place() });
        };
        store.known(&entry)?;
        Ok(store)
    }

    pub(super) fn plane(&mut self, site: Site) -> Result<Plane, StoreError> {
        let mut plane = match self.meta.pieces {
            0 => Plane::new(site)?,
            pieces => {
                let mut packed = Vec::new();
                for piece in 0..pieces {
                    let key = self.piece(self.meta.since, piece);
                    let entry = self.etcd.get(&key)?.ok_or_else(|| self.failed(format!("{key} is missing")))?;
                    packed.extend_from_slice(&entry.value);
                }
                let state = unpack(&packed).map_err(|error| self.failed(error))?;
                Plane::restore(site, state).map_err(|source| StoreError::Restore { place: self.place(), source })?
            }
        };
        self.next = self.meta.since;
        loop {
            let entries = self.etcd.range(&self.journal(self.next), &self.key("journal/~"), PAGE)?;
            if entries.is_empty() {
                return Ok(plane);
            }
            for entry in entries {
                if entry.key != self.journal(self.next) {
                    return Err(self.failed(format!("input {} is missing", self.next)));
                }
                let input: Input = serde_json::from_slice(&entry.value).map_err(|error| self.failed(error))?;
                plane.handle(&input);
                let records = plane.take_records();
                self.unsaved.extend(self.numbered(&records)?);
                self.next += 1;
            }
        }
    }

    pub(super) fn handle(&mut self, plane: &mut Plane, input: &Input) -> Result<Vec<Value>, StoreError> {
        let text = serde_json::to_vec(input).map_err(|error| self.failed(error))?;
        if text.len() > INPUT {
            return Err(self.failed(format!("an input of {} bytes is more than etcd takes", text.len())));
        }
        while self.unsaved.len() > WITH {
            self.write_records()?;
        }
        let key = self.journal(self.next);
        let (with, count) = self.with_records(self.guard()?);
        let outcome = self.commit(&with.if_created(&key, 0).put(&key, &text).or_read(&key))?;
        if outcome.done {
            drop(self.unsaved.drain(..count));
        } else {
            // Not answered before, and given again: its records go with the next one.
            let there = outcome.found.get(1).cloned().flatten();
            if there.is_none_or(|there| there.value != text) {
                return Err(self.failed(format!("input {} is there already, and another one", self.next)));
            }
        }
        plane.handle(input);
        let records = plane.take_records();
        let kept = self.numbered(&records)?;
        self.unsaved.extend(kept.iter().cloned());
        self.next += 1;
        if self.next - self.meta.since >= EVERY {
            match self.keep_state(plane) {
                // The journal is still there; it is tried again with the next input.
                Ok(()) | Err(StoreError::Away(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    pub(super) fn keep_state(&mut self, plane: &Plane) -> Result<(), StoreError> {
        while !self.unsaved.is_empty() {
            self.write_records()?;
        }
        let packed = pack(&plane.state()).map_err(|error| self.failed(error))?;
        let since = self.next;
        let mut pieces = 0;
        for piece in packed.chunks(PIECE) {
            self.write(|txn, store| txn.put(&store.piece(since, pieces), piece))?;
            pieces += 1;
        }
        let after = Meta { since, pieces, ..self.meta.clone() };
        let before = std::mem::replace(&mut self.meta, after);
        let flip = self.write(|txn, store| {
            let txn = txn.put(&store.key("meta"), &store.meta_text());
            let txn = txn.delete(&store.journal(0), &store.journal(since));
            txn.delete(&store.key("state/"), &store.piece(since, 0))
        });
        if let Err(error) = flip {
            // If it was carried out all the same, the same is written again with the next state.
            self.meta = before;
            return Err(error);
        }
        self.trim()
    }

    pub(super) fn audit(&self, from: u64, most: usize) -> Result<Vec<Value>, StoreError> {
        let mut records = Vec::new();
        let mut at = from;
        while records.len() < most {
            let page = self.etcd.range(&self.record(at), &self.key("audit/~"), PAGE.min(most - records.len()))?;
            let Some(last) = page.last() else { break };
            at = last.key.rsplit('/').next().and_then(|digits| digits.parse::<u64>().ok()).map_or(u64::MAX, |n| n + 1);
            for entry in page {
                records.push(serde_json::from_slice(&entry.value).map_err(|error| self.failed(error))?);
            }
        }
        let number = |value: &Value| value["number"].as_u64().unwrap_or_default();
        let from = records.last().map_or(from, |last| number(last) + 1);
        let room = most - records.len();
        records.extend(self.unsaved.iter().filter(|value| number(value) >= from).take(room).cloned());
        Ok(records)
    }

    /// `None`: it is only looked.
    pub(super) fn seat(&self) -> Option<&EtcdSeat> {
        self.seat.as_ref()
    }

    pub(super) fn id(&self) -> u64 {
        self.meta.id
    }

    pub(super) fn origin(&self) -> u64 {
        self.meta.origin
    }

    fn known(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let value: Value = serde_json::from_slice(&entry.value).map_err(|error| self.failed(error))?;
        let found = value["format"].as_u64().unwrap_or_default();
        if found != FORMAT {
            return Err(StoreError::Format { place: self.place(), found });
        }
        self.meta = serde_json::from_value(value).map_err(|error| self.failed(error))?;
        self.next = self.meta.since;
        Ok(())
    }

    /// Keeps the audit log short.
    fn trim(&self) -> Result<(), StoreError> {
        let (first, end) = (self.record(0), self.key("audit/~"));
        let count = self.etcd.count(&first, &end)?;
        if count <= KEPT {
            return Ok(());
        }
        // Some more than necessary, so that it is not done every time.
        let mut left = count - KEPT + KEPT / 10;
        let mut from = first.clone();
        while left > 0 {
            let page = self.etcd.range(&from, &end, left.min(PAGE))?;
            let Some(last) = page.last() else { break };
            left -= page.len();
            from = format!("{}{END}", last.key);
        }
        self.write(|txn, _| txn.delete(&first, &from))
    }

    fn write_records(&mut self) -> Result<(), StoreError> {
        let (txn, count) = self.with_records(self.guard()?);
        self.commit(&txn)?;
        drop(self.unsaved.drain(..count));
        Ok(())
    }

    /// Adds what goes with one transaction of the records that are not written yet, and how many those are.
    fn with_records(&self, mut txn: Txn) -> (Txn, usize) {
        let (mut count, mut bytes) = (0, 0);
        for record in self.unsaved.iter().take(WITH) {
            let text = record.to_string();
            bytes += text.len();
            if count > 0 && bytes > WITH_BYTES {
                break;
            }
            count += 1;
            txn = txn.put(&self.record(record["number"].as_u64().unwrap_or_default()), text.as_bytes());
        }
        (txn, count)
    }

    fn write(&self, what: impl FnOnce(Txn, &EtcdStore) -> Txn) -> Result<(), StoreError> {
        self.commit(&what(self.guard()?, self)).map(drop)
    }

    fn guard(&self) -> Result<Txn, StoreError> {
        Ok(in_office(self.seat(), EtcdSeat::tenure)?.guard())
    }

    /// Carries out what is guarded. An outcome that was not done is one that this leader's own key allowed.
    fn commit(&self, txn: &Txn) -> Result<Outcome, StoreError> {
        let outcome = self.etcd.commit(txn).map_err(StoreError::from).inspect_err(|error| {
            if let (StoreError::Away(why), Some(seat)) = (error, &self.seat) {
                seat.tenure().missed(why);
            }
        })?;
        let leader = outcome.found.first().cloned().flatten();
        let is_mine = self.seat.as_ref().is_some_and(|seat| seat.is_mine(leader.as_ref()));
        if !outcome.done && !is_mine {
            return Err(StoreError::Deposed { leader: leader.map(|entry| Box::new(said(&entry.value))) });
        }
        Ok(outcome)
    }

    fn numbered(&self, records: &[crate::plane::Record]) -> Result<Vec<Value>, StoreError> {
        numbered(self.next, records, self.meta.origin).map_err(|error| self.failed(error))
    }

    fn meta_text(&self) -> Vec<u8> {
        serde_json::to_vec(&self.meta).unwrap_or_default()
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    fn journal(&self, number: u64) -> String {
        self.key(&format!("journal/{number:020}"))
    }

    fn record(&self, number: u64) -> String {
        self.key(&format!("audit/{number:020}"))
    }

    fn piece(&self, since: u64, piece: usize) -> String {
        self.key(&format!("state/{since:020}-{piece:05}"))
    }

    fn failed(&self, error: impl std::fmt::Display) -> StoreError {
        StoreError::Failed { place: self.place(), problem: error.to_string() }
    }

    fn place(&self) -> String {
        format!("etcd, {}", self.prefix)
    }
}

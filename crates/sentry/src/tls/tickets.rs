//! Session tickets: one issuer for the process, so that a client may come back to any worker, after any reload, and to
//! the process that takes over from this one.
//!
//! A ticket is what there is to resume, encrypted with a key that is replaced every six hours, under that key's name.
//! The key before it still opens what it closed, so a ticket is good for six to twelve hours. Keys go to a successor
//! and nowhere else.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;
use serde::{Deserialize, Serialize};

/// For so long a key closes tickets, and for as long again it opens them.
const LIFETIME: Duration = Duration::from_secs(6 * 3600);

/// Bytes of a key's name.
const NAME: usize = 16;

/// A key of tickets, as it goes to a successor.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct TicketKey {
    name: [u8; NAME],
    secret: [u8; 32],
    /// When it was made, seconds since 1970.
    made: u64,
}

/// Closes and opens tickets.
struct Issuer {
    random: SystemRandom,
    /// The newest first; two at most.
    keys: Mutex<Vec<(TicketKey, Arc<LessSafeKey>)>>,
}

/// The process's issuer of tickets.
///
/// # Errors
/// When the system has no random numbers.
pub(crate) fn tickets() -> Result<Arc<dyn ProducesTickets>, String> {
    issuer().map(|issuer| issuer as Arc<dyn ProducesTickets>)
}

/// Whether a ticket was issued here and is still good: a microsecond of symmetric cryptography, which no client can
/// get around.
pub(crate) fn is_ours(ticket: &[u8]) -> bool {
    issuer().is_ok_and(|issuer| issuer.decrypt(ticket).is_some())
}

/// The keys whose tickets are good; none where there are no tickets.
pub(crate) fn keys() -> Vec<TicketKey> {
    let Some(Ok(issuer)) = ISSUER.get() else { return Vec::new() };
    issuer.keys.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(key, _)| key.clone()).collect()
}

/// Goes on with another process's keys. Before the first ticket.
pub(crate) fn adopt(keys: &[TicketKey]) {
    if !keys.is_empty() {
        // It has its own where it issued some already.
        let _ = ISSUER.set(Issuer::with(keys.iter().take(2).filter_map(usable).collect()).map(Arc::new));
    }
}

static ISSUER: OnceLock<Result<Arc<Issuer>, String>> = OnceLock::new();

fn issuer() -> Result<Arc<Issuer>, String> {
    ISSUER.get_or_init(|| Issuer::with(Vec::new()).map(Arc::new)).clone()
}

impl Issuer {
    /// With these keys, and a new one if they are too old.
    fn with(keys: Vec<(TicketKey, Arc<LessSafeKey>)>) -> Result<Issuer, String> {
        let issuer = Issuer { random: SystemRandom::new(), keys: Mutex::new(keys) };
        match issuer.newest() {
            Some(_) => Ok(issuer),
            None => Err("the system has no random numbers".to_owned()),
        }
    }

    /// The key that closes tickets now, replaced when it is time to.
    fn newest(&self) -> Option<(TicketKey, Arc<LessSafeKey>)> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        keys.retain(|(key, _)| now < key.made.saturating_add(2 * LIFETIME.as_secs()));
        let is_young = |(key, _): &&(TicketKey, _)| now < key.made.saturating_add(LIFETIME.as_secs());
        if let Some(newest) = keys.first().filter(is_young) {
            return Some(newest.clone());
        }
        let mut key = TicketKey { name: [0; NAME], secret: [0; 32], made: now };
        self.random.fill(&mut key.name).and_then(|()| self.random.fill(&mut key.secret)).ok()?;
        let made = usable(&key)?;
        keys.insert(0, made.clone());
        keys.truncate(2);
        Some(made)
    }
}

impl ProducesTickets for Issuer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        2 * LIFETIME.as_secs() as u32
    }

    /// The key's name, a nonce, and the rest encrypted.
    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let (key, secret) = self.newest()?;
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut closed = plain.to_vec();
        let nonce_used = Nonce::assume_unique_for_key(nonce);
        secret.seal_in_place_append_tag(nonce_used, Aad::from(&key.name), &mut closed).ok()?;
        Some([&key.name[..], &nonce, &closed].concat())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = cipher.split_at_checked(NAME)?;
        let (nonce, closed) = rest.split_at_checked(NONCE_LEN)?;
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = |key: &TicketKey| key.name == name && now() < key.made.saturating_add(2 * LIFETIME.as_secs());
        let (key, secret) = keys.iter().find(|(key, _)| is_good(key)).cloned()?;
        drop(keys);
        let mut closed = closed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let open = secret.open_in_place(nonce, Aad::from(&key.name), &mut closed).ok()?.len();
        closed.truncate(open);
        Some(closed)
    }
}

fn usable(key: &TicketKey) -> Option<(TicketKey, Arc<LessSafeKey>)> {
    let secret = UnboundKey::new(&CHACHA20_POLY1305, &key.secret).ok()?;
    Some((key.clone(), Arc::new(LessSafeKey::new(secret))))
}

/// Seconds since 1970: keys outlive processes.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Issuer")
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_tickets_are_ours() {
        let mut ticket = tickets().expect("an issuer").encrypt(b"a session").expect("a ticket");
        assert!(is_ours(&ticket));
        ticket[40] ^= 1;
        assert!(!is_ours(&ticket) && !is_ours(b"") && !is_ours(&[0; 200]));
    }

    #[test]
    fn a_successor_opens_what_its_predecessor_closed_until_it_is_too_old() {
        let old = Issuer::with(Vec::new()).expect("an issuer");
        let ticket = old.encrypt(b"a session").expect("a ticket");
        let (key, _) = old.newest().expect("a key");
        let posted = |made: u64| {
            let text = serde_json::to_string(&TicketKey { made, ..key.clone() }).expect("it can be written");
            let key: TicketKey = serde_json::from_str(&text).expect("it can be read");
            Issuer::with(usable(&key).into_iter().collect()).expect("an issuer")
        };
        assert_eq!(posted(key.made).decrypt(&ticket).as_deref(), Some(&b"a session"[..]));
        let later = posted(key.made - LIFETIME.as_secs());
        assert_eq!(later.decrypt(&ticket).as_deref(), Some(&b"a session"[..]), "an old key still opens");
        assert_ne!(later.newest().expect("a key").0.name, key.name, "and closes nothing more");
        assert_eq!(posted(key.made - 2 * LIFETIME.as_secs()).decrypt(&ticket), None);
        assert_eq!(Issuer::with(Vec::new()).expect("an issuer").decrypt(&ticket), None, "a stranger's");
    }
}

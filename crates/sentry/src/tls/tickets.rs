//! Session tickets: one issuer for the process, so that a client may come back to any worker and after any reload.

use std::sync::{Arc, OnceLock};

use rustls::server::ProducesTickets;

/// The issuer. Its key is new every six hours, and the one before is still taken.
///
/// # Errors
/// When there is no randomness to be had.
pub(crate) fn tickets() -> Result<Arc<dyn ProducesTickets>, String> {
    static ISSUER: OnceLock<Result<Arc<dyn ProducesTickets>, String>> = OnceLock::new();
    ISSUER.get_or_init(|| rustls::crypto::ring::Ticketer::new().map_err(|error| error.to_string())).clone()
}

/// Whether a ticket was issued here and is still good: a microsecond of symmetric cryptography, which no client can
/// pretend.
pub(crate) fn is_ours(ticket: &[u8]) -> bool {
    tickets().is_ok_and(|issuer| issuer.decrypt(ticket).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_tickets_are_ours() {
        let mut ticket = tickets().expect("an issuer").encrypt(b"a session").expect("a ticket");
        assert!(is_ours(&ticket));
        ticket[20] ^= 1;
        assert!(!is_ours(&ticket) && !is_ours(b"") && !is_ours(&[0; 200]));
    }
}

//! What clients are told whose handshakes fail.

use super::*;

/// Who speaks what is not spoken here gets an alert that says so, although its first message was also its last.
#[test]
fn who_has_nothing_in_common_is_told_by_an_alert() {
    let (folder, authority, server) = (Folder::new("alerts"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    let sentry = start(folder.config(&[server.address], ONE));
    // TLS 1.1, and TLS 1.2 with a cipher of CBC alone: handshake_failure.
    for minor in [2, 3] {
        let body = [&[3, minor][..], &[7; 32], &[0], &[0, 2, 0xc0, 0x13], &[1, 0]].concat();
        let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
        let mut client = sentry.client();
        client.send([&[22, 3, 1, 0, message.len() as u8][..], &message].concat());
        let mut told = Vec::new();
        client.io.read_to_end(&mut told).expect("an alert, and the end");
        assert!(matches!(told[..], [21, 3, _, 0, 2, 2, 40]), "1.{}: {told:?}", minor - 1);
    }
    until("both are counted", || sentry.count(Counter::HandshakesFailed) == 2);
}

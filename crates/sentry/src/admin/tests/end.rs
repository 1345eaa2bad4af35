//! How the admin API ends.

use super::*;

/// As when a successor takes over.
#[test]
fn who_has_begun_to_ask_is_answered_when_it_ends() {
    let (mut server, _) = start(None);
    let (mut silent, mut asking) = (connect(&server), connect(&server));
    asking.write_all(b"GET /healthz HTTP/1.1\r\nhost: loc").expect("sends");
    // Both are served by now.
    assert_eq!(get(&server, "/healthz").0, 200);
    server.leave();
    assert_eq!(silent.read(&mut [0]).expect("an orderly end"), 0);
    asking.write_all(b"alhost\r\n\r\n").expect("sends");
    let mut answer = String::new();
    asking.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("alive\n"), "{answer}");
}

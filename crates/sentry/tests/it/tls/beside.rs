//! What goes over TLS to others than the servers of requests: checks at a port of their own, and copies for a shadow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tidegate_engine::Status;

use super::ONE;
use super::site::{Authority, Folder, mirror, start};
use crate::support::{RawServer, ok, until};

#[test]
fn checks_and_copies_go_over_tls_to_whom_their_settings_believe() {
    let (folder, authority, server) = (Folder::new("beside"), Authority::new("ca"), mirror());
    folder.pair("site", &authority.sign(&["shop.example"]));
    folder.write("ca.pem", &authority.pem);
    folder.write("another.pem", &Authority::new("another").pem);
    // Another sentry is what is asked, and where copies go.
    let copies = Arc::new(AtomicUsize::new(0));
    let counted = copies.clone();
    let behind = RawServer::answering(move |asked| {
        // Its own sentry takes the mark for a client's, and off; the method tells copies from checks.
        counted.fetch_add(usize::from(asked.method == "POST" && asked.body == b"hi"), SeqCst);
        ok("")
    });
    let other = start(folder.config(&[behind.address], ONE));
    let port = other.address.port();
    for (with, to) in [("tls", "https"), ("https", "https"), ("h2", "h2")] {
        let path = if with == "tls" { "" } else { "health.path = \"/up\"\nhealth.host = \"shop.example\"" };
        let config = |ca: &str| {
            let keys = format!(
                "health.with = \"{with}\"\nhealth.port = {port}\n{path}\nserver_tls = {{ ca = \"{ca}\", name = \"shop.example\" }}\n\
                 mirror = {{ to = \"{to}://127.0.0.1:{port}\" }}"
            );
            let mut config = folder.config(&[server.address], &keys);
            let health = &mut config.applications[0].health;
            (health.interval, health.rise, health.fall) = (Duration::from_millis(5), 1, 1);
            config
        };
        let sentry = start(config("another.pem"));
        let is = |status| sentry.app().live().servers().all(|server| server.status() == status);
        until("who is asked is not believed", || is(Status::Down));
        let mut believing = config("ca.pem");
        believing.applications[0].listen = sentry.app().live().config.listen.clone();
        sentry.handle.reload(believing).expect("a reload");
        until("it is believed, and well", || is(Status::Up));
        let before = copies.load(SeqCst);
        assert_eq!(sentry.ask("POST /a HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 2\r\n\r\nhi").status, 200);
        until("the copy is there", || copies.load(SeqCst) == before + 1);
    }
}

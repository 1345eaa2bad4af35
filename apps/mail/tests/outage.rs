//! A database that goes away: requests fail in their time and say so, and the service recovers by itself.

mod support;

use std::time::{Duration, Instant};

use http::StatusCode;
use support::{Folder, MINUTE, Site, fill, mariadb, options};
use tidegate_mail::policy::Options;
use tidegate_mail::private_mariadb::PrivateMariaDb;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_mariadb_loses_nothing_that_was_acknowledged() {
    let folder = Folder::new();
    let Some(mut server) = mariadb(&folder) else { return };
    fill(&server.database());
    let site = Site::start(server.database(), options());
    let reader = site.reader().await;
    let before = reader.get("/folders").await;
    let (inbox, archive) = (before.folder("Inbox"), before.folder("Archive"));
    let messages = reader.get(&format!("/folder/{}", inbox.0)).await.all("href=\"/message/", "\"");
    let (to_move, to_delete) = (&messages[..20], &messages[20..30]);
    for message in to_move {
        let form = format!("folder={}", archive.0);
        assert_eq!(reader.post(&format!("/message/{message}/refile"), &form).await.status, StatusCode::SEE_OTHER);
    }
    for message in to_delete {
        assert_eq!(reader.post(&format!("/message/{message}/delete"), "").await.status, StatusCode::SEE_OTHER);
    }

    let port = server.port();
    server.kill();
    for path in ["/folders".to_owned(), format!("/folder/{}", inbox.0), format!("/message/{}", messages[40])] {
        let down = reader.get(&path).await;
        assert_eq!(down.status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {}", down.text());
        assert!(down.has("The mail cannot be reached") && down.headers.contains_key("retry-after"), "{}", down.text());
    }
    let unchanged = reader.post(&format!("/message/{}/delete", messages[40]), "").await;
    assert_eq!(unchanged.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reader.get("/static/style.css").await.status, StatusCode::OK, "what needs no database is served");

    drop(server);
    let _server = PrivateMariaDb::start(&folder.0, port).unwrap();
    let after = reader.get("/folders").await;
    assert_eq!(after.status, StatusCode::OK, "the first request after its return is served: {}", after.text());
    let counts = (after.folder("Inbox").1, after.folder("Archive").1, after.folder("Trash").1);
    assert_eq!(counts, (inbox.1 - 30, archive.1 + 20, before.folder("Trash").1 + 10));
    assert_eq!(reader.get(&format!("/message/{}", messages[40])).await.status, StatusCode::OK, "not deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_that_hangs_costs_each_request_its_time_and_no_more() {
    let folder = Folder::new();
    let Some(server) = mariadb(&folder) else { return };
    fill(&server.database());
    let timeout = Duration::from_secs(1);
    let site = Site::start(server.database(), Options { timeout, ..options() });
    let reader = site.reader().await;
    server.freeze();
    let start = Instant::now();
    // More requests than connections: the last ones wait for a connection, and are told in time all the same.
    let answers = futures(8, || reader.get("/folders")).await;
    let took = start.elapsed();
    server.thaw();
    for (status, text) in &answers {
        assert_eq!(*status, StatusCode::GATEWAY_TIMEOUT, "{text}");
        assert!(text.contains("That took too long"), "{text}");
    }
    assert!(took >= timeout && took < Duration::from_secs(20), "{took:?}");
    let give_up = Instant::now() + MINUTE;
    loop {
        let status = reader.get("/folders").await.status;
        if status == StatusCode::OK {
            break;
        }
        assert!(Instant::now() < give_up, "it does not recover: {status}");
    }
}

/// Several requests at once.
async fn futures<F>(count: usize, ask: impl Fn() -> F) -> Vec<(StatusCode, String)>
where
    F: Future<Output = support::Page>,
{
    let mut waiting: Vec<_> = (0..count).map(|_| Box::pin(ask())).collect();
    let mut answers = Vec::new();
    std::future::poll_fn(|cx| {
        waiting.retain_mut(|future| match future.as_mut().poll(cx) {
            std::task::Poll::Ready(page) => {
                answers.push((page.status, page.text()));
                false
            }
            std::task::Poll::Pending => true,
        });
        if waiting.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    answers
}

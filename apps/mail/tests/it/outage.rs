//! A database that goes away: requests fail in their time and say so, and the service recovers by itself.

use std::time::{Duration, Instant};

use http::StatusCode;
use tidegate_mail::database::Transaction;
use tidegate_mail::policy::Options;
use tidegate_mail::private_mariadb::PrivateMariaDb;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::{Folder, MINUTE, Page, Site, Visitor, fill, mariadb, options};

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
async fn a_mariadb_killed_under_load_fails_requests_and_keeps_what_it_acknowledged() {
    killed_under_load(2 * MINUTE).await.unwrap();
}

/// Four visitors file one message after the other. MariaDB is killed while they do, and comes back.
///
/// # Errors
/// When a request has no answer within `patience`.
pub async fn killed_under_load(patience: Duration) -> Result<(), String> {
    let folder = Folder::new();
    let Some(mut server) = mariadb(&folder) else { return Ok(()) };
    fill(&server.database());
    let timeout = Duration::from_secs(10);
    let site = Site::start(server.database(), Options { timeout, ..options() });
    let reader = site.reader().await;
    let before = reader.get("/folders").await;
    let (inbox, archive) = (before.folder("Inbox"), before.folder("Archive"));
    let messages = reader.get(&format!("/folder/{}?show=all", inbox.0)).await.all("href=\"/message/", "\"");
    let messages: Vec<String> = messages.into_iter().filter(|id| id.parse::<i64>().is_ok()).take(100).collect();
    assert_eq!(messages.len(), 100);
    let (tell, mut told) = watch::channel((0, 0));
    let (kill, killed) = watch::channel(false);
    let mut filers = JoinSet::new();
    for part in messages.chunks(25) {
        let (visitor, part, tell) = (site.reader().await, part.to_vec(), tell.clone());
        let mut killed = killed.clone();
        filers.spawn(async move {
            for (at, message) in part.iter().enumerate() {
                if at == 10 {
                    // Enough is left to file without a database, however late it is killed.
                    killed.wait_for(|killed| *killed).await.unwrap();
                }
                file(&visitor, message, archive.0, patience, &tell).await?;
            }
            Ok(())
        });
    }
    told.wait_for(|(filed, _)| *filed >= 20).await.unwrap();
    let port = server.port();
    server.kill();
    kill.send_replace(true);
    let failing = told.wait_for(|(_, failed)| *failed >= 8);
    tokio::time::timeout(2 * MINUTE, failing).await.expect("they fail").unwrap();
    assert!(told.borrow().0 < 100, "it was killed too late to show anything");
    drop(server);
    let again = folder.0.clone();
    let _server = tokio::task::spawn_blocking(move || PrivateMariaDb::start(&again, port).unwrap()).await.unwrap();
    filers.join_all().await.into_iter().collect::<Result<(), String>>()?;
    let page = reader.get(&format!("/folder/{}?show=all", archive.0)).await;
    let found = page.all("href=\"/message/", "\"");
    let lost: Vec<_> = messages.iter().filter(|message| !found.contains(message)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let after = reader.get("/folders").await;
    assert_eq!((after.folder("Inbox").1, after.folder("Archive").1), (inbox.1 - 100, archive.1 + 100));
    Ok(())
}

/// Moves a message until that is acknowledged, and counts.
///
/// # Errors
/// When there is no answer within `patience`.
async fn file(
    visitor: &Visitor,
    message: &str,
    folder: i64,
    patience: Duration,
    tell: &watch::Sender<(u32, u32)>,
) -> Result<(), String> {
    loop {
        let (path, form) = (format!("/message/{message}/refile"), format!("folder={folder}"));
        let page = tokio::time::timeout(patience, visitor.post(&path, &form)).await;
        let page = page.map_err(|_| format!("no answer within {patience:?}"))?;
        if page.status == StatusCode::SEE_OTHER {
            tell.send_modify(|(filed, _)| *filed += 1);
            return Ok(());
        }
        let went_away = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT].contains(&page.status);
        assert!(went_away, "{}: {}", page.status, page.text());
        tell.send_modify(|(_, failed)| *failed += 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_statements_that_wait_for_each_other_both_are_done() {
    let folder = Folder::new();
    let Some(server) = mariadb(&folder) else { return };
    let database = server.database();
    fill(&database);
    let mut holder = database.connect(MINUTE).unwrap();
    holder.transaction(Transaction::Begin).unwrap();
    // The server undoes whoever changed less: this one must not be it.
    holder.execute("UPDATE message SET bytes = bytes + 1 WHERE id <= 50", &[]).unwrap();
    let other = database.clone();
    let crossing = std::thread::spawn(move || {
        let mut connection = other.connect(MINUTE).unwrap();
        connection.execute("UPDATE message SET bytes = bytes + 1 WHERE id IN (1, 100) ORDER BY id DESC", &[])
    });
    let mut observer = database.connect(MINUTE).unwrap();
    let waits = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    let give_up = Instant::now() + MINUTE;
    while observer.query(waits, &[]).unwrap()[0][0].int() == 0 {
        assert!(Instant::now() < give_up, "nobody waits");
        // The table is looked up anew only when nobody has asked for a tenth of a second.
        std::thread::park_timeout(Duration::from_millis(200));
    }
    holder.execute("UPDATE message SET bytes = bytes + 1 WHERE id = 100", &[]).unwrap();
    holder.transaction(Transaction::Commit).unwrap();
    assert_eq!(crossing.join().unwrap(), Ok(2));
}

/// Five seconds, so that they are enough for whatever comes before on any machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mariadb_that_hangs_costs_each_request_its_time() {
    hanging(Duration::from_secs(5), 2 * MINUTE).await.unwrap();
}

/// Requests have `timeout` each when MariaDB hangs, and then are told so.
///
/// # Errors
/// When they are not within `patience`.
pub async fn hanging(timeout: Duration, patience: Duration) -> Result<(), String> {
    let folder = Folder::new();
    let Some(server) = mariadb(&folder) else { return Ok(()) };
    fill(&server.database());
    let site = Site::start(server.database(), Options { timeout, ..options() });
    let reader = site.reader().await;
    server.freeze();
    let start = Instant::now();
    // More requests than connections: the last ones wait for a connection, and are told in time all the same.
    let answers = tokio::time::timeout(patience, at_once(8, || reader.get("/folders"))).await;
    let answers =
        answers.map_err(|_| format!("eight requests of {timeout:?} each have no answer within {patience:?}"))?;
    // tidy-allow(measured-time): no machine is so slow that they come before their time
    let took = start.elapsed();
    server.thaw();
    for (status, text) in &answers {
        assert_eq!(*status, StatusCode::GATEWAY_TIMEOUT, "{text}");
        assert!(text.contains("That took too long"), "{text}");
    }
    assert!(took >= timeout, "{took:?}");
    let give_up = Instant::now() + MINUTE;
    loop {
        let status = reader.get("/folders").await.status;
        if status == StatusCode::OK {
            return Ok(());
        }
        assert!(Instant::now() < give_up, "it does not recover: {status}");
    }
}

/// Several requests at once.
async fn at_once<F>(count: usize, ask: impl Fn() -> F) -> Vec<(StatusCode, String)>
where
    F: Future<Output = Page>,
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

//! Every page and every action over loopback, on both databases.

use http::StatusCode;
use tidegate_mail::database::Database;

use crate::support::{Folder, Site, fill, mariadb, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_and_action_on_sqlite() {
    let folder = Folder::new();
    every_page_and_action(folder.sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_and_action_on_mariadb() {
    let folder = Folder::new();
    let Some(server) = mariadb(&folder) else { return };
    every_page_and_action(server.database()).await;
}

async fn every_page_and_action(database: Database) {
    fill(&database);
    let site = Site::start(database, options());
    signing_in_and_out(&site).await;
    reading(&site).await;
    moving_and_deleting(&site).await;
    searching(&site).await;
    what_belongs_to_others(&site).await;
    cheaper_answers(&site).await;
    what_needs_no_account(&site).await;
}

async fn signing_in_and_out(site: &Site) {
    let mut visitor = site.visitor();
    assert!(visitor.get("/").await.has("<h1>Sign in</h1>"));
    let signed_out = visitor.get("/folders").await;
    assert_eq!(signed_out.status, StatusCode::UNAUTHORIZED);
    assert!(signed_out.has("Please sign in first") && signed_out.has("action=\"/login\""));
    let nobody = visitor.sign_in("nobody").await;
    assert_eq!(nobody.status, StatusCode::UNAUTHORIZED);
    assert!(nobody.has("There is no account of the name &quot;nobody&quot;"));
    let signed_in = visitor.sign_in("user1").await;
    assert_eq!(
        (signed_in.status, signed_in.headers["location"].to_str().unwrap()),
        (StatusCode::SEE_OTHER, "/folders")
    );
    let cookie = signed_in.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Lax"), "{cookie}");
    assert!(visitor.get("/folders").await.has("user1"));
    assert_eq!(visitor.get("/").await.headers["location"], "/folders");
    assert_eq!(visitor.post("/logout", "").await.headers["location"], "/");
    assert_eq!(
        visitor.get("/folders").await.status,
        StatusCode::UNAUTHORIZED,
        "the session is over on the server, too"
    );
}

async fn reading(site: &Site) {
    let reader = site.reader().await;
    let (inbox, count) = reader.get("/folders").await.folder("Inbox");
    assert_eq!(count, 120);
    let first = reader.get(&format!("/folder/{inbox}")).await;
    assert!(first.has("1 to 50 of 120 messages"), "{}", first.text());
    assert_eq!(first.all("href=\"/message/", "\"").len(), 50);
    let last = reader.get(&format!("/folder/{inbox}?first=100")).await;
    assert!(last.has("101 to 120 of 120") && last.has("Later") && !last.has("Earlier"));
    let all = reader.get(&format!("/folder/{inbox}?show=all")).await;
    assert_eq!(all.all("href=\"/message/", "\"").len(), 120);
    let dates = all.all("<td class=\"when\">", "<");
    assert!(dates.is_sorted_by(|a, b| a >= b), "latest first: {dates:?}");
    let message = reader.get(&format!("/message/{}", first.all("href=\"/message/", "\"")[0])).await;
    assert_eq!(message.status, StatusCode::OK);
    for part in ["Back to Inbox", "Move to", "Archive", "class=\"text\"", "@example.org"] {
        assert!(message.has(part), "{part} is missing in {}", message.text());
    }
}

async fn moving_and_deleting(site: &Site) {
    let reader = site.reader().await;
    let before = reader.get("/folders").await;
    let (inbox, archive, trash) = (before.folder("Inbox"), before.folder("Archive"), before.folder("Trash"));
    let message = reader.get(&format!("/folder/{}", inbox.0)).await.all("href=\"/message/", "\"")[7].clone();

    let moved = reader.submit(&format!("/message/{message}/refile"), &format!("folder={}", archive.0)).await;
    assert!(moved.has("Moved to <a"), "{}", moved.text());
    assert_eq!((moved.folder("Inbox").1, moved.folder("Archive").1), (inbox.1 - 1, archive.1 + 1));

    let deleted = reader.submit(&format!("/message/{message}/delete"), "").await;
    assert!(deleted.has("Moved to the trash"));
    assert_eq!((deleted.folder("Archive").1, deleted.folder("Trash").1), (archive.1, trash.1 + 1));
    assert!(reader.get(&format!("/message/{message}")).await.has("Delete for good"));

    let gone = reader.submit(&format!("/message/{message}/delete"), "").await;
    assert!(gone.has("Deleted for good"));
    assert_eq!(gone.folder("Trash").1, trash.1);
    let missing = reader.get(&format!("/message/{message}")).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert!(missing.has("There is no such message in your mail"));
    assert_eq!(reader.post(&format!("/message/{message}/delete"), "").await.status, StatusCode::NOT_FOUND);
}

async fn searching(site: &Site) {
    let reader = site.reader().await;
    let (inbox, _) = reader.get("/folders").await.folder("Inbox");
    let message = reader.get(&format!("/folder/{inbox}?show=all")).await.all("href=\"/message/", "\"")[60].clone();
    let page = reader.get(&format!("/message/{message}")).await;
    let text = page.all("<div class=\"text\">", "</div>")[0].clone();
    // All words of a sentence, in capitals: only in the message they were taken from, most likely; there, certainly.
    let words: Vec<String> = text.split_whitespace().take(5).map(|w| w.trim_matches('.').to_uppercase()).collect();
    let found = reader.get(&format!("/search?folder={inbox}&q={}", words.join("+"))).await;
    assert!(found.all("href=\"/message/", "\"").contains(&message), "{}", found.text());
    let nothing = reader.get(&format!("/search?folder={inbox}&q=xyzzy%25_!%27")).await;
    assert!(nothing.has("Nothing found") && nothing.has("xyzzy%_!&#39;"), "{}", nothing.text());
    let any = reader.get(&format!("/search?folder={inbox}&q=%25")).await;
    assert!(any.has("Nothing found"), "a percent sign is no joker: {}", any.text());
    assert_eq!(reader.get(&format!("/search?folder={inbox}&q=+")).await.status, StatusCode::BAD_REQUEST);
}

async fn what_belongs_to_others(site: &Site) {
    let reader = site.reader().await;
    let inbox = reader.get("/folders").await.folder("Inbox").0;
    let message = reader.get(&format!("/folder/{inbox}")).await.all("href=\"/message/", "\"")[0].clone();
    let mut other = site.visitor();
    other.sign_in("user1").await;
    if other.get("/folders").await.folder("Inbox").0 == inbox {
        other.sign_in("user2").await;
    }
    for path in [format!("/folder/{inbox}"), format!("/message/{message}"), format!("/search?folder={inbox}&q=a")] {
        assert_eq!(other.get(&path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(other.post(&format!("/message/{message}/delete"), "").await.status, StatusCode::NOT_FOUND);
    let own = other.get("/folders").await.folder("Archive").0;
    let stolen = other.post(&format!("/message/{message}/refile"), &format!("folder={own}")).await;
    assert_eq!(stolen.status, StatusCode::NOT_FOUND);
    assert_eq!(reader.get(&format!("/message/{message}")).await.status, StatusCode::OK);
}

async fn cheaper_answers(site: &Site) {
    let mut reader = site.reader().await;
    let inbox = reader.get("/folders").await.folder("Inbox");
    let best = reader.get("/render/ada.png").await;
    assert_eq!((&best.bytes[1..4], best.headers.get("tidegate-quality")), (&b"PNG"[..], None));
    reader.headers.push(("tidegate-quality", "0.5".to_owned()));
    let picture = reader.get("/render/ada.png").await;
    assert_eq!((picture.headers["tidegate-quality"].as_bytes(), &picture.bytes[1..4]), (&b"0.50"[..], &b"PNG"[..]));
    let search = reader.get(&format!("/search?folder={}&q=e", inbox.0)).await;
    let half = (inbox.1 as f64 / 2.0).ceil();
    assert!(search.has(&format!("only the latest {half} of {} messages were searched", inbox.1)), "{}", search.text());
    assert_eq!(search.headers["tidegate-quality"], "0.50");
}

async fn what_needs_no_account(site: &Site) {
    let visitor = site.visitor();
    assert_eq!(visitor.get("/healthz").await.text(), "ok\n");
    assert_eq!(visitor.get("/static/style.css").await.headers["content-type"], "text/css; charset=utf-8");
    assert_eq!(visitor.get("/static/logo.svg").await.headers["content-type"], "image/svg+xml");
    for path in ["/static/../Cargo.toml", "/static/x", "/nothing", "/folder/x/y"] {
        assert_eq!(visitor.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(visitor.post("/folders", "").await.status, StatusCode::METHOD_NOT_ALLOWED);
    let state: serde_json::Value = serde_json::from_slice(&visitor.get("/api/stages").await.bytes).unwrap();
    let stages = state["graph"]["stages"].as_array().unwrap();
    assert_eq!((stages.len(), state["policy"].as_str()), (9, Some("none")));
    assert!(state["database"]["opened"].as_u64().unwrap() >= 1);
    let shown = visitor.get("/stages").await;
    assert!(shown.has("<svg") && shown.has("list-messages") && shown.has("Connections to the database"));
    assert!(visitor.get("/metrics").await.has("list-messages"));
}

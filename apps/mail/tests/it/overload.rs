//! What refusals look like, and whom they meet.

use http::StatusCode;
use tidegate_mail::policy::{Degrade, Options, Policy};
use tidegate_stage::{Parameters, Seconds};

use crate::support::{Folder, Site, Visitor, fill, options};

/// One request of each type and class, then nothing for two hundred seconds.
fn nearly_shut(policy: Policy) -> Options {
    let parameters =
        Parameters { initial_rate: 0.005, min_rate: 0.005, timeout: Seconds(3600.0), ..Parameters::default() };
    Options { policy, parameters, ..options() }
}

async fn signed_in(site: &Site) -> Visitor {
    let mut visitor = site.visitor();
    visitor.headers.push(("tidegate-class", "2".to_owned()));
    assert_eq!(visitor.sign_in("user1").await.status, StatusCode::SEE_OTHER);
    visitor
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_says_when_to_come_again_and_concerns_one_type_and_class() {
    let folder = Folder::new();
    fill(&folder.sqlite());
    let site = Site::start(folder.sqlite(), nearly_shut(Policy::Aimd));
    let mut visitor = signed_in(&site).await;
    let listed = visitor.get("/folders").await;
    assert_eq!(listed.status, StatusCode::OK, "other types are let in all the same");
    let refused = visitor.get("/folders").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    let seconds: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((100..=200).contains(&seconds), "{seconds} s");
    assert_eq!(refused.headers["tidegate-stage"], "list-folders; reason=rate-limit");
    assert!(refused.has(&format!("Please try again in {seconds} s")), "{}", refused.text());
    let inbox = listed.folder("Inbox").0;
    assert_eq!(visitor.get(&format!("/folder/{inbox}")).await.status, StatusCode::OK);
    visitor.headers.retain(|(name, _)| *name != "tidegate-class");
    visitor.headers.push(("tidegate-class", "1".to_owned()));
    assert_eq!(visitor.get("/folders").await.status, StatusCode::OK, "the other class has its own rate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_controller_for_all_refuses_whatever_comes_next() {
    let folder = Folder::new();
    fill(&folder.sqlite());
    let site = Site::start(folder.sqlite(), nearly_shut(Policy::Single));
    let visitor = signed_in(&site).await;
    let refused = visitor.get("/folders").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers["tidegate-stage"], "all-requests; reason=rate-limit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_control_everything_is_let_in() {
    let folder = Folder::new();
    fill(&folder.sqlite());
    let site = Site::start(folder.sqlite(), nearly_shut(Policy::None));
    let visitor = signed_in(&site).await;
    for _ in 0..5 {
        assert_eq!(visitor.get("/folders").await.status, StatusCode::OK);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_connections_lets_the_others_wait() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let folder = Folder::new();
    fill(&folder.sqlite());
    let site = Site::start(folder.sqlite(), Options { policy: Policy::Limit(1), ..options() });
    let mut kept = tokio::net::TcpStream::connect(site.address).await.unwrap();
    let mut answer = [0; 64];
    let mut ask = async || {
        kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: mail\r\n\r\n").await.unwrap();
        assert!(kept.read(&mut answer).await.unwrap() > 0);
    };
    ask().await;
    let visitor = site.visitor();
    let other = tokio::spawn(async move { visitor.get("/healthz").await.text() });
    for _ in 0..20 {
        ask().await;
    }
    assert!(!other.is_finished(), "only one connection is served at a time");
    drop(kept);
    assert_eq!(other.await.unwrap(), "ok\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_stage_draws_coarser_pictures_before_it_refuses() {
    let folder = Folder::new();
    fill(&folder.sqlite());
    // Nothing is done within a nanosecond: every run of the controller is over its target.
    let target = std::time::Duration::from_nanos(1);
    let parameters = Parameters { samples: 1, ..Parameters::default() };
    let degrade = Degrade::ThenRefuse;
    let site = Site::start(folder.sqlite(), Options { policy: Policy::Aimd, target, degrade, parameters, ..options() });
    let visitor = site.visitor();
    let mut qualities = Vec::new();
    let refused = loop {
        let page = visitor.get("/render/ada.png").await;
        if page.status != StatusCode::OK {
            break page;
        }
        let quality = page.headers.get("tidegate-quality").map_or(1.0, |q| q.to_str().unwrap().parse::<f64>().unwrap());
        qualities.push(quality);
        assert!(qualities.len() < 10_000, "it is never refused: {:?}", &qualities[..50]);
    };
    assert_eq!(refused.headers["tidegate-stage"], "render; reason=rate-limit");
    assert!(qualities[0] == 1.0 && *qualities.last().unwrap() < 1.0, "{qualities:?}");
    assert!(qualities.is_sorted_by(|a, b| a >= b), "{qualities:?}");
}

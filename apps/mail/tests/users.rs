//! The users of `users.toml` against the service.

mod support;

use std::path::Path;
use std::time::Duration;

use support::{Folder, Site, fill, options};
use tidegate_loadgen::{LoadRun, UsersFile, UsersPlan};
use tidegate_mail::policy::{Options, Policy};
use tidegate_stage::{Parameters, Seconds};

fn plan(site: &Site, duration: Duration) -> UsersPlan {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("users.toml")).unwrap();
    let text = text.replace("user%16", "user%2").replace("count = 32", "count = 4");
    let file = UsersFile::parse(&text, "users.toml").unwrap();
    UsersPlan::new(file, &format!("http://{}", site.address), duration).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_ask_for_everything_and_are_answered() {
    let folder = Folder::new();
    fill(&folder.sqlite());
    let site = Site::start(folder.sqlite(), options());
    let report = LoadRun::start_users(plan(&site, Duration::from_secs(4))).unwrap().wait().await.unwrap();
    for name in ["login", "list-folders", "list-messages", "show-message"] {
        let request = report.request(name).unwrap();
        assert!(request.admitted > 0, "{report}");
    }
    let total = &report.total;
    // Two users share an account: what one deletes, the other may have in hand.
    assert!(total.other * 10 <= total.offered, "{report}");
    assert_eq!(
        (total.errors_total(), total.refused, report.sessions_broken, report.sessions),
        (0, 0, 0, 4),
        "{report}"
    );
    assert!(report.request("search").unwrap().offered * 20 <= total.offered, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_users_stay_away() {
    let folder = Folder::new();
    fill(&folder.sqlite());
    let parameters =
        Parameters { initial_rate: 0.05, min_rate: 0.05, timeout: Seconds(3600.0), ..Parameters::default() };
    let site = Site::start(folder.sqlite(), Options { policy: Policy::Aimd, parameters, ..options() });
    let report = LoadRun::start_users(plan(&site, Duration::from_secs(2))).unwrap().wait().await.unwrap();
    // Back-off is 5 s and the run 2 s: nobody is refused twice, and only the first gets in at all.
    assert_eq!((report.sessions, report.sessions_broken), (4, 4), "{report}");
    assert_eq!((report.total.refused, report.request("login").unwrap().refused), (4, 3), "{report}");
}

//! The users of `users.toml` against the service.

use std::path::Path;
use std::time::Duration;

use tidegate_loadgen::{LoadRun, Progress, UsersFile, UsersPlan, UsersReport};
use tidegate_mail::policy::{Options, Policy};
use tidegate_stage::{Parameters, Seconds};

use crate::support::{Folder, MINUTE, Site, fill, options, seeds};

/// Seeds with which a test of this file has failed.
const REGRESSIONS: &[u64] = &[];

/// Four users, who go on until they are stopped; who was refused stays away for longer than that.
fn plan(site: &Site, seed: u64) -> UsersPlan {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("users.toml")).unwrap();
    let text = text.replace("user%16", "user%2").replace("count = 32", "count = 4").replace("\"5s\"", "\"3600s\"");
    let file = UsersFile::parse(&text, "users.toml").unwrap();
    let mut plan = UsersPlan::new(file, &format!("http://{}", site.address), Duration::from_secs(3600)).unwrap();
    plan.seed = seed;
    plan
}

/// Lets users ask until `enough` was seen.
async fn users_until(site: &Site, seed: u64, enough: impl Fn(&Progress) -> bool) -> UsersReport {
    let run = LoadRun::start_users(plan(site, seed)).unwrap();
    let mut progress = run.progress();
    tokio::time::timeout(2 * MINUTE, progress.wait_for(enough)).await.expect("it is seen in time").unwrap();
    run.stop();
    run.wait().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_ask_for_everything_and_are_answered() {
    for seed in seeds(REGRESSIONS) {
        let folder = Folder::new();
        fill(&folder.sqlite());
        let site = Site::start(folder.sqlite(), options());
        let names = ["login", "list-folders", "list-messages", "show-message"];
        let report = users_until(&site, seed, |progress| {
            let admitted = |name| progress.classes.iter().any(|class| class.class == name && class.admitted > 0);
            names.into_iter().all(admitted) && progress.classes.iter().map(|class| class.offered).sum::<u64>() >= 500
        })
        .await;
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_users_stay_away() {
    for seed in seeds(REGRESSIONS) {
        let folder = Folder::new();
        fill(&folder.sqlite());
        // A second one of any type would be let in after an hour.
        let parameters =
            Parameters { initial_rate: 2e-4, min_rate: 2e-4, timeout: Seconds(3600.0), ..Parameters::default() };
        let site = Site::start(folder.sqlite(), Options { policy: Policy::Aimd, parameters, ..options() });
        let refused = |progress: &Progress| progress.classes.iter().map(|class| class.refused).sum::<u64>();
        let report = users_until(&site, seed, |progress| refused(progress) >= 4).await;
        // Nobody is refused twice, and only the first gets in at all.
        assert_eq!((report.sessions, report.sessions_broken), (4, 4), "{report}");
        assert_eq!((report.total.refused, report.request("login").unwrap().refused), (4, 3), "{report}");
    }
}

//! Sites: nothing is lost when servers and sentries come and go, and equal seeds give equal runs.

use tidegate_experiment::outcome::Outcome;
use tidegate_experiment::scenario::Scenario;
use tidegate_experiment::service::Played;

/// Two applications on eight servers of 50/s; the first one's rush needs six, and its sentry is busy then.
const SITE: &str = r#"
    id = "site"
    title = "a rush on one of two applications"
    duration = "500s"
    sla = { target = "500ms" }
    servers = { count = 8, setup_time = "10s", warm_up = { time = "10s", speed = 0.5 } }
    sentry = { admitted = "5ms", refused = "2ms" }
    provision = { every = "5s", max_sentries = 3 }
    application = [{ name = "shop", servers = 2 }, { name = "blog", servers = 2, min_servers = 2 }]
    class = [{ name = "buyers", application = "shop" }, { name = "readers", application = "blog" }]
    request = [{ name = "page", service = { distribution = "exponential", mean = "20ms" }, urls = 3 }]
    load = [
        { class = "buyers", requests = { page = 1 }, rate = "0s:40/s, 50s:220/s, 200s:40/s" },
        { class = "readers", requests = { page = 1 }, rate = "30/s" },
    ]
    arm = [{ name = "follow" }, { name = "cpu", provision = { policy = "cpu-target" } }]
"#;

fn play(arm: usize, seed: u64) -> Outcome {
    let scenario = Scenario::parse(SITE, "site.toml").unwrap_or_else(|error| panic!("{error}"));
    Played::new(&scenario, &scenario.arms[arm]).unwrap().play(seed).unwrap()
}

#[test]
fn every_request_has_one_end() {
    for arm in 0..2 {
        for stream in play(arm, 3).streams {
            let total = stream.course.total();
            assert!(total.offered > 10_000, "{}: {}", stream.name, total.offered);
            assert_eq!(total.offered, total.admitted() + total.refused + total.failed, "{}", stream.name);
            // Servers are drained before they are stopped.
            assert_eq!(total.failed, 0, "{}", stream.name);
        }
    }
}

#[test]
fn servers_and_sentries_come_and_go() {
    let outcome = play(0, 1);
    let shop = &outcome.provisioned[0].seconds;
    // 40/s are 0.8 of a server: by theory a 95th percentile of 0.3 s.
    assert_eq!((shop[20].servers, shop[20].sentries), (1.0, 1.0));
    assert!(shop[150].servers >= 5.0, "{:?}", shop[150]);
    // 220/s are 1.1 of a sentry.
    assert!(shop[150].sentries >= 2.0 && shop[150].sentry_spread < 0.1, "{:?}", shop[150]);
    // Refusals of the rush may have taught it to keep one more than the two that theory says.
    assert!(shop[499].servers <= 3.0 && shop[499].sentries == 1.0, "{:?}", shop[499]);
    assert!(outcome.provisioned[1].seconds.iter().all(|second| second.servers == 2.0), "nobody takes the other's");
}

#[test]
fn equal_seeds_give_equal_runs() {
    assert_eq!(play(0, 5), play(0, 5));
    assert_ne!(play(0, 5), play(0, 6));
}

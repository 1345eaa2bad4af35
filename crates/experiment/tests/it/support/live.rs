//! Scenarios on real HTTP, and how they are played.

use tidegate_experiment::outcome::Outcome;
use tidegate_experiment::scenario::Scenario;
use tidegate_experiment::service::{self, Lab};

use crate::support::PATIENCE;

/// Plays the first arm to its end.
pub fn play(scenario: &Scenario, seed: u64) -> Outcome {
    let lab = Lab { tidegate: "tidegate".into(), mail: "tidegate-mail".into(), folder: std::env::temp_dir() };
    let run = service::of(&scenario.on()).start(scenario, &scenario.arms[0], seed, &lab).expect("a run");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = runtime.block_on(async { tokio::time::timeout(2 * PATIENCE, run.wait()).await });
    outcome.expect("it ends").expect("an outcome")
}

/// Three seconds; one server of 100/s, and from the first second on three times that.
pub const RUSH: &str = r#"
    id = "rush"
    title = "three seconds"
    duration = "3s"
    timeout = "5s"
    sla = { target = "300ms" }
    servers = { count = 1, learned = false }
    class = [{ name = "gold" }, { name = "rest" }]
    request = [
        { name = "page", service = { distribution = "constant", value = "10ms" }, response_bytes = 300, urls = 2 },
        { name = "image", service = { distribution = "constant", value = "10ms" } },
    ]
    load = [
        { class = "gold", requests = { page = 1 }, rate = "40/s" },
        { class = "rest", requests = { page = 1, image = 1 }, rate = "0s:20/s, 1s:260/s" },
    ]
    arm = [{ name = "batch", admission = { policy = "batch" } }]
    expect = [
        { what = "gold is known by its path", class = "gold", metric = "admitted_share", over = "0s..1s", at_least = 0.9 },
        { what = "the rest is refused", class = "rest", metric = "refused_share", over = "1s..3s", at_least = 0.2 },
        { what = "nothing breaks", metric = "failed_share", over = "0s..3s", at_most = 0.0 },
        { what = "canary", metric = "offered_rate", over = "0s..3s", at_least = 100000 },
    ]
"#;

/// Three servers with a back end besides their cores, and a nucleus each; two kinds of users in sessions, a partition
/// for each class.
pub const CLUSTER: &str = r#"
    id = "cluster"
    title = "four seconds of sessions"
    duration = "4s"
    sla = { target = "400ms" }
    class = [{ name = "top" }, { name = "normal" }]
    max_conn = [
        { name = "static", requests = ["page"], within_target = 40, most = 60 },
        { name = "dynamic", requests = ["made"], within_target = 8, most = 12 },
    ]
    live = { nuclei = ["static"] }

    [servers]
    count = 3
    learned = false
    resource = [{ name = "backend", discipline = "ps", units = 2 }, { name = "network", discipline = "ps", units = 1000 }]

    [[request]]
    name = "page"
    service = { distribution = "constant", value = "1ms" }
    step = [{ resource = "network", amount = { distribution = "constant", value = "150ms" } }]

    [[request]]
    name = "made"
    service = { distribution = "constant", value = "1ms" }
    step = [{ resource = "backend", amount = { distribution = "constant", value = "50ms" } }]

    [[sessions]]
    class = "top"
    rate = "20/s"
    static = "page"
    dynamic_light = "made"
    dynamic_cpu = "made"
    dynamic_cpu_and_disk = "made"
    per_object = "0.1ms"

    [[sessions]]
    class = "normal"
    rate = "20/s"
    static = "page"
    dynamic_light = "made"
    dynamic_cpu = "made"
    dynamic_cpu_and_disk = "made"

    [[arm]]
    name = "static"
    admission = { policy = "switch" }
    dispatch = { policy = "wrr" }
    partition = { policy = "static", shares = [0.5] }

    [[expect]]
    what = "both classes have servers of their own"
    class = "top"
    metric = "servers_least"
    over = "1s..4s"
    at_least = 1
    [[expect]]
    what = "made pages take their time at the back end"
    load = "top-dynamic"
    metric = "p50"
    over = "1s..4s"
    at_least = 0.05
    [[expect]]
    what = "pages from files do not wait for them"
    load = "normal-static"
    metric = "p50"
    over = "1s..4s"
    at_least = 0.15
    [[expect]]
    what = "some of them are under way"
    load = "top-static"
    metric = "in_flight"
    over = "1s..4s"
    at_least = 0.3
    [[expect]]
    what = "nothing breaks"
    metric = "failed_share"
    over = "0s..4s"
    at_most = 0.0
"#;

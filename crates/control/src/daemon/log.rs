//! Records as events of the log.

use serde_json::Value;
use tracing::{debug, error, info, warn};

/// What an operator has to put right.
const WRONG: [&str; 1] = ["sentry-refused"];
/// What works less well than it should.
const WORSE: [&str; 10] = [
    "clock",
    "kubernetes",
    "no-sentries",
    "provider-failed",
    "provider-hangs",
    "scaled-by-others",
    "sentry-cut-off",
    "sentry-failed",
    "sentry-forgotten",
    "server-failed",
];
/// What only says that what was said before is done.
const DETAIL: [&str; 1] = ["step-done"];

/// Logs a record: as an error what somebody must put right, as a warning what works less well, as information what
/// changes.
pub(super) fn log(record: &Value) {
    let (kind, text) = (record["kind"].as_str().unwrap_or_default(), record["text"].as_str().unwrap_or_default());
    let number_of = |key: &str| record[key].as_u64();
    let (application, server, post) = (record["application"].as_str(), number_of("server"), number_of("post"));
    let number = number_of("number");
    if WRONG.contains(&kind) {
        error!(application, server, post, record = number, "{kind}: {text}");
    } else if WORSE.contains(&kind) {
        warn!(application, server, post, record = number, "{kind}: {text}");
    } else if DETAIL.contains(&kind) {
        debug!(application, server, post, record = number, "{kind}: {text}");
    } else {
        info!(application, server, post, record = number, "{kind}: {text}");
    }
}

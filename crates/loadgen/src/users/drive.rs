//! The run: all users as tasks of one thread.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::shared::Shared;
use super::user::User;
use super::{UsersPlan, UsersReport};
use crate::client::Way;
use crate::plan::Destination;
use crate::progress::{Progress, ten_times_a_second};

/// Runs the plan to its end, or until `stop` turns true. Inside a local runtime.
pub(crate) async fn drive(
    plan: UsersPlan,
    way: Way,
    destination: Destination,
    mut stop: watch::Receiver<bool>,
    progress: watch::Sender<Progress>,
) -> std::io::Result<UsersReport> {
    let shared = Rc::new(Shared::new(plan, way, destination));
    let ticker = {
        let (shared, progress) = (Rc::clone(&shared), progress.clone());
        tokio::task::spawn_local(ten_times_a_second(move |length| {
            shared.health.borrow_mut().tick();
            progress.send_replace(shared.progress(length, false));
        }))
    };
    let mut users = JoinSet::new();
    let mut stream = 0;
    for (index, group) in shared.plan.file.users.iter().enumerate() {
        for number in 1..=shared.plan.file.most(group) {
            users.spawn_local(User::new(Rc::clone(&shared), index, number, stream).run());
            stream += 1;
        }
    }
    let all = async { while users.join_next().await.is_some() {} };
    let stopped = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => true,
        () = all => false,
    };
    ticker.abort();
    // Those who are still there say how many connections they opened as they go.
    users.shutdown().await;
    let report = shared.report(stopped);
    progress.send_replace(shared.progress(Duration::ZERO, true));
    Ok(report)
}

//! What depends on the machine's speed: judged alone, on a machine that is watched.

mod capacity;
mod dashboard;
mod grpc;
mod load;
mod prometheus;
mod work;

use tidegate_loadgen::Report;

/// Says so when the generator was too late for what it measured to be judged.
fn tell_disturbance(report: &Report) {
    if let Some(line) = report.disturbance() {
        println!("{line}");
    }
}

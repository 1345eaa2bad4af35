//! What several tests need.

mod events;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_stage::{ClassId, Notice, Parameters, Settings, What};

pub use events::Events;

/// The most important class.
pub const FIRST: ClassId = ClassId(0);

/// Work that takes `time` on the paused clock and no processor.
pub async fn work(time: Duration) {
    // tidy-allow(sleeping-tests): the work that a handler does; time is paused and nobody waits for it
    tokio::time::sleep(time).await;
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Settings that refuse nobody for the rate.
pub fn open() -> Settings {
    Settings::default().policing(false)
}

/// Settings whose controller begins with `rate` events per second.
pub fn at_rate(rate: f64) -> Settings {
    Settings::default().parameters(Parameters { initial_rate: rate, ..Parameters::default() })
}

/// Keeps every notice.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<Notice>>>);

impl Heard {
    pub fn sink(&self) -> impl Fn(&Notice) + Send + Sync + 'static {
        let heard = self.0.clone();
        move |notice: &Notice| heard.lock().unwrap().push(notice.clone())
    }

    pub fn all(&self) -> Vec<Notice> {
        self.0.lock().unwrap().clone()
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.all().iter().map(|notice| notice.what.name()).collect()
    }

    pub fn any(&self, test: impl Fn(&What) -> bool) -> bool {
        self.all().iter().any(|notice| test(&notice.what))
    }
}

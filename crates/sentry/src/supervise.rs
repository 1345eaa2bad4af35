//! Tasks that must not end: one that panics is begun anew, counted and said.

use std::time::Duration;

use tokio::task::spawn_local;
use tracing::error;

/// Between a panic and the next beginning: one that panics at once does not take the processor.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs what `begin` makes, again after each panic, of which `count` is told. Ends when a run ends by itself.
pub(crate) async fn supervise<F>(what: &'static str, count: impl Fn(), mut begin: impl FnMut() -> F)
where
    F: Future<Output = ()> + 'static,
{
    loop {
        match spawn_local(begin()).await {
            Err(stopped) if stopped.is_panic() => {
                count();
                error!(task = what, "a task of a worker panicked and is begun anew: please report it");
                tokio::time::sleep(PAUSE).await;
            }
            // It is over, or the worker is.
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_task_that_panics_is_begun_anew() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build_local(Default::default()).expect("a runtime");
        let (begun, panics) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (times, counted) = (begun.clone(), panics.clone());
        runtime.block_on(supervise(
            "test",
            move || counted.set(counted.get() + 1),
            move || {
                let time = times.get() + 1;
                times.set(time);
                async move { assert!(time == 3, "a panic on purpose") }
            },
        ));
        assert_eq!((begun.get(), panics.get()), (3, 2));
    }
}

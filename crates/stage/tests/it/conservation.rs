//! Nothing is lost in the books: whatever is sent, by whom and however its handlers end, every event is accounted for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_stage::{ClassId, Context, Event, GraphBuilder, Settings, each};

use crate::support::{at_rate, millis, work};

/// What happens to one event on its way.
#[derive(Clone, Copy, Debug)]
struct Fate {
    class: u8,
    /// Milliseconds until the next one is sent.
    gap: u64,
    /// Milliseconds of work in the first stage.
    work: u64,
    panics: bool,
    /// Sent with `send_within`, not `try_send`.
    waits: bool,
    goes_on: bool,
}

fn fate() -> impl Strategy<Value = Fate> {
    (0u8..3, 0u64..8, 0u64..20, prop::bool::weighted(0.1), any::<bool>(), any::<bool>())
        .prop_map(|(class, gap, work, panics, waits, goes_on)| Fate { class, gap, work, panics, waits, goes_on })
}

fn settings(queue: usize, rate: f64) -> Settings {
    at_rate(rate).classes(2).queue(queue).workers(1, 3).batch(1, 4)
}

async fn run(fates: Vec<Fate>, queue: usize, rate: f64, early: bool) -> Result<(), TestCaseError> {
    let mut builder = GraphBuilder::new("books").with_early_refusal(early);
    let first = builder.stage("first", settings(queue, rate));
    let second = builder.stage("second", settings(queue, rate / 2.0));
    let to_second = builder.link(&first, &second);
    let sent_on = Arc::new(AtomicU64::new(0));
    let counted = sent_on.clone();
    builder.handle(
        &first,
        each(move |event: Event<Fate>, _: &Context| {
            let (to_second, counted) = (to_second.clone(), counted.clone());
            async move {
                work(millis(event.body.work)).await;
                assert!(!event.body.panics, "on purpose");
                if event.body.goes_on {
                    counted.fetch_add(1, Ordering::Relaxed);
                    drop(to_second.try_send(event));
                }
            }
        }),
    );
    builder.handle(&second, each(|event: Event<Fate>, _: &Context| work(millis(event.body.work / 2))));
    let entry = builder.entry(&first);
    let graph = builder.start().expect("a sound graph");
    let (mut taken, mut waiting) = (0u64, Vec::new());
    for fate in &fates {
        let (entry, fate) = (entry.clone(), *fate);
        match fate.waits {
            true => waiting.push(tokio::spawn(async move {
                entry.send_within(ClassId(fate.class), fate, millis(30)).await.is_ok()
            })),
            false => taken += u64::from(entry.try_send(ClassId(fate.class), fate).is_ok()),
        }
        work(millis(fate.gap)).await;
    }
    for sent in waiting {
        taken += u64::from(sent.await.expect("no panic"));
    }
    prop_assert!(graph.drain(Duration::from_secs(60)).await.is_complete());
    let snapshot = graph.snapshot();
    for stage in &snapshot.stages {
        for class in &stage.classes {
            prop_assert_eq!(class.offered, class.admitted + class.refused_in_all(), "{:?}", class);
            prop_assert_eq!(class.admitted, class.completed + class.lost, "{:?}", class);
        }
        prop_assert!(stage.workers_max >= stage.workers && stage.waiting == 0 && stage.busy == 0);
    }
    let (first, second) = (&snapshot.stages[0], &snapshot.stages[1]);
    prop_assert_eq!(first.total(|class| class.admitted), taken);
    prop_assert_eq!(first.panics, first.total(|class| class.lost));
    prop_assert_eq!(second.total(|class| class.offered), sent_on.load(Ordering::Relaxed));
    prop_assert!(early || second.total(|class| class.refused_early) == 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_event_is_accounted_for(
        fates in prop::collection::vec(fate(), 1..200), queue in 1usize..20, rate in 20f64..2000.0, early in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(fates, queue, rate, early))?;
    }
}

//! Many threads at once: no wake-up is lost and no event comes twice, with small queues and real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_stage::{ClassId, Context, Event, Graph, GraphBuilder, Settings, each, each_blocking};

use crate::support::open;

const SENDERS: u64 = 6;
const EVENTS_EACH: u64 = 2_000;

/// Two stages with a waiting link; the second adds up what it sees.
fn service(settings: Settings, blocking: bool) -> (Graph, tidegate_stage::Entry<u64>, Arc<AtomicU64>) {
    let mut builder = GraphBuilder::new("threads");
    let [first, second] = ["first", "second"].map(|name| builder.stage::<u64>(name, settings.clone()));
    let next = builder.waiting_link(&first, &second);
    let sum = Arc::new(AtomicU64::new(0));
    match blocking {
        true => builder.handle_blocking(
            &first,
            each_blocking(move |event: Event<u64>, _: &Context| next.send_blocking(event).unwrap()),
        ),
        false => builder.handle(
            &first,
            each(move |event: Event<u64>, _: &Context| {
                let next = next.clone();
                async move { next.send(event).await.unwrap() }
            }),
        ),
    }
    let added = sum.clone();
    builder.handle(
        &second,
        each(move |event: Event<u64>, _: &Context| {
            added.fetch_add(event.body, Ordering::Relaxed);
            std::future::ready(())
        }),
    );
    let entry = builder.entry(&first);
    (builder.start().unwrap(), entry, sum)
}

async fn all_arrive(settings: Settings, blocking: bool) {
    let (graph, entry, sum) = service(settings, blocking);
    let senders = (0..SENDERS).map(|sender| {
        let entry = entry.clone();
        tokio::spawn(async move {
            for n in 0..EVENTS_EACH {
                entry.send(ClassId((n % 2) as u8), sender * EVENTS_EACH + n).await.unwrap();
            }
        })
    });
    let senders: Vec<_> = senders.collect();
    let work = async {
        for sender in senders {
            sender.await.unwrap();
        }
        graph.drain(Duration::from_secs(60)).await
    };
    let drained = tokio::time::timeout(Duration::from_secs(120), work).await.expect("nobody hangs");
    assert!(drained.is_complete(), "{drained:?}");
    let total = SENDERS * EVENTS_EACH;
    assert_eq!(sum.load(Ordering::Relaxed), total * (total - 1) / 2);
    let snapshot = graph.snapshot();
    for stage in &snapshot.stages {
        assert_eq!(stage.total(|class| class.completed), total, "{stage:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_pass_on_everything() {
    all_arrive(open().classes(2).queue(3).workers(2, 4).batch(1, 4), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_place_in_the_queue_is_enough() {
    all_arrive(open().classes(2).queue(1).workers(1, 1).batch(1, 1), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_threads_pass_on_everything() {
    all_arrive(open().classes(2).queue(4).workers(2, 3).batch(1, 4), true).await;
}

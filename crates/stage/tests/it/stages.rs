//! What one stage does: refuses, waits, batches, grows, and survives its handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_stage::{
    Batch, CallError, ClassId, Context, Entry, Event, Graph, GraphBuilder, Handler, Lost, Parameters, RefusalReason,
    Reply, Settings, What, each, each_blocking,
};
use tokio::sync::{Semaphore, mpsc};

use crate::support::{Events, FIRST, Heard, at_rate, millis, open, work};

/// A graph of one stage, "only".
fn one<T: Send + 'static>(settings: Settings, handler: impl Handler<T>) -> (Graph, Entry<T>) {
    let mut builder = GraphBuilder::new("test");
    let only = builder.stage("only", settings);
    builder.handle(&only, handler);
    let entry = builder.entry(&only);
    (builder.start().unwrap(), entry)
}

#[tokio::test(start_paused = true)]
async fn a_refused_event_comes_back_with_the_time_to_try_again() {
    let (_graph, entry) = one(at_rate(10.0), each(|_: Event<&str>, _: &Context| async {}));
    entry.try_send(FIRST, "first").unwrap();
    let refused = entry.try_send(FIRST, "second").unwrap_err();
    assert_eq!((refused.reason, &*refused.stage, refused.is_early), (RefusalReason::RateLimit, "only", false));
    assert_eq!(refused.retry_after, millis(100));
    assert!(refused.to_string().contains("\"only\" is overloaded for class 1; try again in 0.100 s"), "{refused}");
    tokio::time::advance(refused.retry_after).await;
    entry.try_send(FIRST, refused.event.into_body()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_and_senders_that_wait_get_in_as_they_came() {
    let gate = Arc::new(Semaphore::new(0));
    let (done, mut seen) = mpsc::channel(100);
    let (_graph, entry) = one(open().queue(2).workers(1, 1).batch(1, 1), {
        let gate = gate.clone();
        each(move |event: Event<u32>, _: &Context| {
            let (gate, done) = (gate.clone(), done.clone());
            async move {
                gate.acquire().await.unwrap().forget();
                done.send(event.body).await.unwrap();
            }
        })
    });
    entry.try_send(FIRST, 0).unwrap();
    tokio::task::yield_now().await;
    (1..=2).for_each(|n| entry.try_send(FIRST, n).unwrap());
    assert_eq!(entry.try_send(FIRST, 9).unwrap_err().reason, RefusalReason::QueueFull);
    let waiting = (3..=6).map(|n| {
        let entry = entry.clone();
        tokio::spawn(async move { entry.send(FIRST, n).await.unwrap() })
    });
    let waiting: Vec<_> = waiting.collect();
    tokio::task::yield_now().await;
    gate.add_permits(1);
    assert_eq!(seen.recv().await, Some(0));
    assert_eq!(entry.try_send(FIRST, 9).unwrap_err().reason, RefusalReason::QueueFull, "the room is for who waits");
    gate.add_permits(6);
    for n in 1..=6 {
        assert_eq!(seen.recv().await, Some(n));
    }
    for task in waiting {
        task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn patience_ends_and_gives_the_event_back() {
    let (_graph, entry) = one(at_rate(0.1), each(|_: Event<u8>, _: &Context| async {}));
    entry.try_send(FIRST, 1).unwrap();
    let start = tokio::time::Instant::now();
    let refused = entry.send_within(FIRST, 2, millis(700)).await.unwrap_err();
    assert_eq!((refused.reason, refused.event.body), (RefusalReason::TimedOut, 2));
    // tidy-allow(measured-time): time is paused
    assert_eq!(start.elapsed(), millis(700));
    entry.send(FIRST, refused.event.into_body()).await.unwrap();
    // tidy-allow(measured-time): time is paused
    assert!((millis(9_990)..=millis(10_010)).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_stops_waiting_leaves_its_room_to_others() {
    let gate = Arc::new(Semaphore::new(0));
    let for_handler = gate.clone();
    let handler = each(move |_: Event<u8>, _: &Context| {
        let gate = for_handler.clone();
        async move { gate.acquire().await.unwrap().forget() }
    });
    let (_graph, entry) = one(open().queue(1).workers(1, 1).batch(1, 1), handler);
    entry.try_send(FIRST, 0).unwrap();
    tokio::task::yield_now().await;
    entry.try_send(FIRST, 1).unwrap();
    let (quits, stays) = (entry.clone(), entry.clone());
    let quits = tokio::spawn(async move { quits.send(FIRST, 2).await });
    let stays = tokio::spawn(async move { stays.send(FIRST, 3).await });
    tokio::task::yield_now().await;
    quits.abort();
    assert!(quits.await.unwrap_err().is_cancelled());
    gate.add_permits(1);
    stays.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_contained_counted_and_told() {
    let (heard, logged) = (Heard::default(), Events::catch());
    let mut builder = GraphBuilder::new("test").with_sink(heard.sink());
    let only = builder.stage("divide", open().workers(1, 1));
    builder.handle(
        &only,
        each(|event: Event<(u32, Reply<u32>)>, _: &Context| async move {
            let (n, reply) = event.into_body();
            reply.send(12 / n);
        }),
    );
    let entry = builder.entry(&only);
    let graph = builder.start().unwrap();
    // Three calls that come as one batch: the one in the middle dies alone.
    let call = |n| entry.call(FIRST, move |reply| (n, reply));
    let (first, second, third) = tokio::join!(call(3), call(0), call(4));
    assert_eq!((first.unwrap(), third.unwrap()), (4, 3));
    match second {
        Err(CallError::Lost(lost)) => {
            assert_eq!(lost, Lost::Panicked { stage: Some("divide".into()) });
            assert_eq!(lost.to_string(), "the handler of stage \"divide\" panicked");
        }
        other => panic!("{other:?}"),
    }
    let snapshot = graph.snapshot();
    let stage = snapshot.stage("divide").unwrap();
    assert_eq!((stage.panics, stage.classes[0].lost), (1, 1));
    let told = |what: &What| matches!(what, What::HandlerPanicked { message, lost: 1 } if message.contains("divide"));
    assert!(heard.any(told), "{:?}", heard.all());
    assert!(graph.drain(millis(100)).await.is_complete());
    let lines = logged.lines();
    assert!(lines.iter().any(|line| line.starts_with("ERROR a handler panicked stage=\"divide\"")), "{lines:?}");
    assert!(lines.contains(&"INFO draining graph=\"test\"".to_owned()), "{lines:?}");
}

/// Without a sink: the log is enough for notices to be made, and there are few of them.
#[tokio::test(start_paused = true)]
async fn refusals_are_logged_when_they_begin_and_end_and_not_one_by_one() {
    let logged = Events::catch();
    let (graph, entry) = one(at_rate(10.0), each(|_: Event<u32>, _: &Context| async {}));
    let refused = (0..50).filter(|n| entry.try_send(FIRST, *n).is_err()).count();
    assert_eq!(refused, 49);
    work(Duration::from_secs(3)).await;
    assert!(graph.drain(millis(100)).await.is_complete());
    let lines = logged.lines();
    let refusals: Vec<_> = lines.iter().filter(|line| line.contains("refusals")).collect();
    let began = "INFO refusals began stage=\"only\" class=0 reason=\"rate-limit\"";
    assert_eq!(refusals, [began, "INFO refusals ended stage=\"only\" class=0 refused=49"]);
}

struct WholeBatches(mpsc::Sender<usize>);

impl Handler<u32> for WholeBatches {
    async fn handle(&self, batch: &mut Batch<u32>, _context: &Context) {
        let count = batch.take().count();
        self.0.send(count).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_takes_what_waits_up_to_the_limit_and_shares_with_others() {
    let (counts, mut seen) = mpsc::channel(10);
    let (_graph, entry) = one(open().batch(8, 8).workers(1, 1), WholeBatches(counts));
    (0..20).for_each(|n| entry.try_send(FIRST, n).unwrap());
    assert_eq!([seen.recv().await, seen.recv().await, seen.recv().await], [Some(8), Some(8), Some(4)]);

    let (counts, mut seen) = mpsc::channel(10);
    let (_graph, entry) = one(open().batch(8, 8).workers(2, 2), WholeBatches(counts));
    (0..6).for_each(|n| entry.try_send(FIRST, n).unwrap());
    assert_eq!([seen.recv().await, seen.recv().await], [Some(3), Some(2)]);
}

struct Idler;

impl Handler<Reply<()>> for Idler {
    async fn handle(&self, _batch: &mut Batch<Reply<()>>, _context: &Context) {}
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_asks_for_nothing_loses_its_events_and_nobody_hangs() {
    let (graph, entry) = one(open(), Idler);
    assert!(matches!(entry.call(FIRST, |reply| reply).await, Err(CallError::Lost(Lost::Dropped))));
    assert_eq!(graph.snapshot().stages[0].classes[0].lost, 1);
    assert!(graph.drain(millis(100)).await.is_complete());
}

#[tokio::test(start_paused = true)]
async fn workers_follow_the_queue_up_and_idleness_down() {
    let handler = each(|_: Event<u32>, _: &Context| work(millis(100)));
    let (graph, entry) = one(open().workers(1, 8).batch(1, 1), handler);
    for n in 0..400 {
        entry.try_send(FIRST, n).unwrap();
        work(millis(15)).await;
    }
    // 67 events per second of 100 ms each keep 6.7 workers busy.
    let busy = graph.snapshot().stages[0].workers;
    assert!((7..=8).contains(&busy), "{busy}");
    work(Duration::from_secs(60)).await;
    assert_eq!(graph.snapshot().stages[0].workers, 1);
    assert_eq!(graph.snapshot().stages[0].classes[0].completed, 400);
}

#[tokio::test(start_paused = true)]
async fn the_rate_finds_what_keeps_the_target() {
    // One worker, 10 ms each: 100 per second are possible, 400 are offered.
    let heard = Heard::default();
    let mut builder = GraphBuilder::new("test").with_sink(heard.sink());
    let settings = Settings::target(millis(200)).workers(1, 1).queue(10_000);
    let slow = builder.stage("slow", settings.parameters(Parameters { initial_rate: 400.0, ..Parameters::default() }));
    builder.handle(&slow, each(|_: Event<()>, _: &Context| work(millis(10))));
    let entry = builder.entry(&slow);
    let graph = builder.start().unwrap();
    let mut refused = 0;
    for second in 0..120 {
        for _ in 0..400 {
            refused += usize::from(entry.try_send(FIRST, ()).is_err() && second >= 60);
            work(Duration::from_micros(2500)).await;
        }
    }
    let stage = &graph.snapshot().stages[0];
    let percentile = stage.classes[0].percentile.unwrap();
    assert!((0.02..0.4).contains(&percentile), "{percentile} s: {stage:?}");
    // Of 24,000 offered in the second minute about 6,000 fit.
    assert!((17_000..20_000).contains(&refused), "{refused}");
    let names = heard.names();
    assert!(["rate-changed", "refusal-began"].iter().all(|name| names.contains(name)), "{names:?}");
    work(Duration::from_secs(3)).await;
    assert!(heard.names().contains(&"refusal-ended"));
}

#[tokio::test(start_paused = true)]
async fn less_important_classes_give_way_first() {
    let targets = [millis(200), millis(200)];
    let settings = Settings::default().class_targets(&targets).workers(1, 1).queue(10_000);
    let handler = each(|_: Event<()>, _: &Context| work(millis(10)));
    let (graph, entry) = one(settings, handler);
    for _ in 0..60 * 100 {
        // 80 per second of class 1 alone would fit; 80 of class 2 more do not.
        let _ = entry.try_send(ClassId(1), ());
        let _ = entry.try_send(FIRST, ());
        // A class beyond the last counts as the last.
        let _ = entry.try_send(ClassId(9), ());
        work(Duration::from_micros(12_500)).await;
    }
    let stage = &graph.snapshot().stages[0];
    let share = |class: usize| stage.classes[class].admitted as f64 / stage.classes[class].offered as f64;
    assert!(share(0) > 2.0 * share(1), "{} {}", share(0), share(1));
    assert_eq!(stage.classes[1].offered, 12_000);
}

#[tokio::test(start_paused = true)]
async fn handlers_read_quality_and_switch_policing() {
    let quality = tidegate_stage::QualityParameters { min: 0.25, then_police: false, ..Default::default() };
    let parameters = Parameters { quality: Some(quality), ..Parameters::default() };
    let lowest = Arc::new(std::sync::Mutex::new(1.0f64));
    let for_handler = lowest.clone();
    let handler = each(move |_: Event<()>, context: &Context| {
        let quality = context.quality();
        let mut lowest = for_handler.lock().unwrap();
        *lowest = lowest.min(quality);
        // A cheaper answer takes less time.
        work(millis(20).mul_f64(quality))
    });
    let settings = Settings::target(millis(200)).workers(1, 1).queue(10_000).parameters(parameters);
    let (graph, entry) = one(settings, handler);
    assert!(!graph.snapshot().stages[0].policing, "quality goes first");
    for _ in 0..4000 {
        let _ = entry.try_send(FIRST, ());
        work(millis(10)).await;
    }
    let stage = &graph.snapshot().stages[0];
    assert!(*lowest.lock().unwrap() < 0.6, "{stage:?}");
    assert_eq!(stage.classes[0].refused_in_all(), 0, "half the quality carries the load: {stage:?}");

    let (switched, mut seen) = mpsc::channel(1);
    let handler = each(move |_: Event<()>, context: &Context| {
        context.set_policing(false);
        let (context, switched) = (context.clone(), switched.clone());
        async move {
            let view = (context.is_policing(), context.target(FIRST), context.stage().to_owned());
            switched.send(view).await.unwrap();
        }
    });
    let (_graph, entry) = one(at_rate(1.0).queue(10), handler);
    entry.try_send(FIRST, ()).unwrap();
    assert_eq!(seen.recv().await, Some((false, Duration::from_secs(1), "only".to_owned())));
    assert!((0..10).all(|_| entry.try_send(FIRST, ()).is_ok()), "admission control is off");
}

#[tokio::test]
async fn blocking_handlers_have_threads_of_their_own() {
    let mut builder = GraphBuilder::new("test");
    let first = builder.stage("block", open().workers(2, 2));
    let second = builder.stage::<(String, Reply<String>)>("narrow", open().queue(1).workers(1, 1).batch(1, 1));
    let next = builder.waiting_link(&first, &second);
    let (arrived, running) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Barrier::new(2)));
    let counted = arrived.clone();
    builder.handle_blocking(
        &first,
        each_blocking(move |event: Event<Reply<String>>, _: &Context| {
            // Passes only when two handlers block at once.
            running.wait();
            counted.fetch_add(1, Ordering::Relaxed);
            let name = std::thread::current().name().unwrap().to_owned();
            next.send_blocking(event.map(|reply| (name, reply))).unwrap();
        }),
    );
    builder.handle(
        &second,
        each(|event: Event<(String, Reply<String>)>, _: &Context| async move {
            let (name, reply) = event.into_body();
            reply.send(name);
        }),
    );
    let entry = builder.entry(&first);
    let graph = builder.start().unwrap();
    let call = || entry.call(FIRST, |reply| reply);
    let (a, b, c, d) = tokio::join!(call(), call(), call(), call());
    let mut names: Vec<String> = [a, b, c, d].into_iter().map(Result::unwrap).collect();
    names.sort();
    assert_eq!(names[0], "block-1");
    assert_eq!(names[3], "block-2");
    assert_eq!(arrived.load(Ordering::Relaxed), 4);
    assert!(graph.drain(Duration::from_secs(30)).await.is_complete());
}

#[tokio::test]
async fn a_blocking_handler_may_panic_too() {
    let mut builder = GraphBuilder::new("test");
    let only = builder.stage::<Reply<()>>("bad", open().workers(1, 1));
    builder.handle_blocking(
        &only,
        each_blocking(|event: Event<Reply<()>>, _: &Context| {
            let _reply = event.into_body();
            panic!("on purpose");
        }),
    );
    let entry = builder.entry(&only);
    let graph = builder.start().unwrap();
    for _ in 0..2 {
        let lost = entry.call(FIRST, |reply| reply).await.unwrap_err();
        assert!(matches!(lost, CallError::Lost(Lost::Panicked { stage: Some(stage) }) if &*stage == "bad"));
    }
    // The caller hears of it while the stack unwinds, before it is counted.
    assert!(graph.drain(Duration::from_secs(30)).await.is_complete());
    assert_eq!(graph.snapshot().stages[0].panics, 2);
}

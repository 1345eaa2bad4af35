//! What graphs do: refuse bad declarations, drain, refuse early.

use std::time::Duration;

use tidegate_stage::{
    Context, Entry, Event, Graph, GraphBuilder, GraphError, Parameters, RefusalReason, Seconds, Settings,
    SettingsError, each,
};

use crate::support::{FIRST, Heard, at_rate, millis, open, work};

fn nothing<T: Send + 'static>() -> impl tidegate_stage::Handler<T> {
    each(|_: Event<T>, _: &Context| async {})
}

fn mistake(declare: impl FnOnce(&mut GraphBuilder)) -> GraphError {
    let mut builder = GraphBuilder::new("test");
    declare(&mut builder);
    builder.start().err().expect("a mistake")
}

#[tokio::test]
async fn targets_that_nothing_can_meet_are_refused_by_name() {
    for target in [0.0, -0.5] {
        let error = mistake(|builder| {
            let settings = Settings { targets: vec![Seconds(target)], ..Settings::default() };
            let search = builder.stage::<()>("search", settings);
            builder.handle(&search, nothing());
        });
        let expected = SettingsError::Target { class: 1, target };
        assert_eq!(error, GraphError::Settings { stage: "search".into(), error: expected });
        assert!(error.to_string().starts_with("stage \"search\": the target of class 1 is"), "{error}");
    }
}

#[tokio::test]
async fn stages_without_a_handler_or_with_anothers_name_are_refused() {
    let error = mistake(|builder| drop(builder.stage::<()>("idle", open())));
    assert_eq!(error, GraphError::NoHandler { stage: "idle".into() });
    let error = mistake(|builder| {
        for _ in 0..2 {
            let stage = builder.stage::<()>("twin", open());
            builder.handle(&stage, nothing());
        }
    });
    assert_eq!(error, GraphError::DuplicateName { stage: "twin".into() });
    let error = mistake(|builder| {
        let stage = builder.stage::<()>("eager", open());
        builder.handle(&stage, nothing());
        builder.handle(&stage, nothing());
    });
    assert_eq!(error, GraphError::TwoHandlers { stage: "eager".into() });
    let error = mistake(|builder| {
        let foreign = GraphBuilder::new("other").stage::<()>("foreign", open());
        builder.entry(&foreign);
    });
    assert_eq!(error, GraphError::ForeignStage { stage: "foreign".into() });
    let error = mistake(|builder| {
        for n in 0..65 {
            let stage = builder.stage::<()>(format!("s{n}"), open());
            builder.handle(&stage, nothing());
        }
    });
    assert!(matches!(error, GraphError::TooManyStages { .. }), "{error}");
}

#[tokio::test]
async fn only_cycles_on_which_every_link_waits_are_refused() {
    let cycle = |waiting_back: bool| {
        move |builder: &mut GraphBuilder| {
            let [first, a, b] = ["first", "a", "b"].map(|name| builder.stage::<()>(name, open()));
            for stage in [&first, &a, &b] {
                builder.handle(stage, nothing());
            }
            builder.waiting_link(&first, &a);
            builder.waiting_link(&a, &b);
            match waiting_back {
                true => drop(builder.waiting_link(&b, &a)),
                false => drop(builder.link(&b, &a)),
            }
        }
    };
    let error = mistake(cycle(true));
    assert_eq!(error, GraphError::Deadlock { stages: vec!["a".into(), "b".into()] });
    assert!(error.to_string().contains("\"a\" -> \"b\" -> \"a\""), "{error}");
    let mut builder = GraphBuilder::new("test");
    cycle(false)(&mut builder);
    assert!(builder.start().is_ok());
}

#[test]
fn a_graph_needs_a_runtime() {
    let mut builder = GraphBuilder::new("lonely");
    let stage = builder.stage::<()>("stage", open());
    builder.handle(&stage, nothing());
    assert_eq!(builder.start().err(), Some(GraphError::NoRuntime { graph: "lonely".into() }));
}

/// `parse` (1 ms) sends to `search` (10 ms, one worker) whatever is odd or `all`.
fn parse_and_search(early: bool, all: bool) -> (Graph, Entry<u32>, Entry<u32>) {
    let mut builder = GraphBuilder::new("test").with_early_refusal(early);
    let parse = builder.stage("parse", open().workers(4, 32));
    let search = builder.stage("search", Settings::target(millis(300)).workers(1, 1));
    let to_search = builder.link(&parse, &search);
    builder.handle(
        &parse,
        each(move |event: Event<u32>, _: &Context| {
            let to_search = to_search.clone();
            async move {
                work(millis(1)).await;
                if all || event.body % 2 == 1 {
                    // A refusal is counted where it happens; there is nobody to tell here.
                    let _ = to_search.try_send(event);
                }
            }
        }),
    );
    builder.handle(&search, each(|_: Event<u32>, _: &Context| work(millis(10))));
    let (anywhere, towards) = (builder.entry(&parse), builder.entry_towards(&parse, &search));
    (builder.start().unwrap(), anywhere, towards)
}

/// Offers 400 per second for a minute; the share of `parse`'s work that was for nothing, and what search completed.
async fn waste(graph: &Graph, mut send: impl FnMut(u32)) -> (f64, u64) {
    for n in 0..60 * 400 {
        send(n);
        work(Duration::from_micros(2500)).await;
    }
    let snapshot = graph.snapshot();
    let (parse, search) = (&snapshot.stage("parse").unwrap().classes[0], &snapshot.stage("search").unwrap().classes[0]);
    (search.refused_late as f64 / parse.completed as f64, search.completed)
}

#[tokio::test(start_paused = true)]
async fn refusals_are_moved_to_the_entry_before_work_is_spent() {
    let (graph, entry, _) = parse_and_search(false, true);
    let (late, done_late) = waste(&graph, |n| drop(entry.try_send(FIRST, n))).await;
    let (graph, entry, _) = parse_and_search(true, true);
    let (early, done_early) = waste(&graph, |n| drop(entry.try_send(FIRST, n))).await;
    println!("work for nothing: {late:.3} refused late, {early:.3} refused early; done {done_late}, {done_early}");
    assert!(late > 0.6, "{late}");
    assert!(early < 0.03, "{early}");
    assert!(done_early as f64 > 0.9 * done_late as f64, "{done_early} {done_late}");
    let snapshot = graph.snapshot();
    assert!(snapshot.stage("search").unwrap().classes[0].refused_early > 10_000);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_go_to_the_pressed_stage_is_let_in() {
    let (graph, anywhere, towards) = parse_and_search(true, false);
    let mut refused = [0, 0];
    let send = |n: u32| match n % 2 {
        0 => refused[0] += usize::from(anywhere.try_send(FIRST, n).is_err()),
        _ => refused[1] += usize::from(towards.try_send(FIRST, n).is_err()),
    };
    let (late, _) = waste(&graph, send).await;
    assert_eq!(refused[0], 0, "half of the work never goes to search");
    assert!(refused[1] > 4_000, "{refused:?}");
    assert!(late < 0.03, "{late}");
    let refusal = loop {
        match towards.try_send(FIRST, 1) {
            Err(refusal) => break refusal,
            Ok(()) => continue,
        }
    };
    assert_eq!((&*refusal.stage, refusal.is_early, refusal.reason), ("search", true, RefusalReason::RateLimit));
}

#[tokio::test(start_paused = true)]
async fn who_waits_at_the_entry_waits_for_the_pressed_stage_too() {
    let (graph, _, towards) = parse_and_search(true, true);
    waste(&graph, |n| drop(towards.try_send(FIRST, n))).await;
    let late = |graph: &Graph| graph.snapshot().stage("search").unwrap().classes[0].refused_late;
    let (before, start) = (late(&graph), tokio::time::Instant::now());
    for n in 0..200 {
        // One entered a moment ago, so that the next one has to wait.
        let _ = towards.try_send(FIRST, n);
        towards.send(FIRST, n).await.unwrap();
    }
    assert_eq!(late(&graph), before, "nothing was spent on what search would refuse");
    // tidy-allow(measured-time): time is paused
    assert!(start.elapsed() > Duration::from_secs(1), "{:?}", start.elapsed());
    let refused = loop {
        if let Err(refused) = towards.send_within(FIRST, 0, Duration::ZERO).await {
            break refused;
        }
    };
    assert_eq!((refused.reason, &*refused.stage), (RefusalReason::TimedOut, "search"));
}

#[tokio::test(start_paused = true)]
async fn a_pressed_stage_is_forgotten_when_it_refuses_no_more() {
    let (graph, entry, _) = parse_and_search(true, true);
    waste(&graph, |n| drop(entry.try_send(FIRST, n))).await;
    work(Duration::from_secs(30)).await;
    for n in 0..100 {
        entry.try_send(FIRST, n).unwrap();
        work(millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_finishes_what_is_there_and_takes_nothing_new() {
    let heard = Heard::default();
    let mut builder = GraphBuilder::new("mail").with_sink(heard.sink());
    let [a, b] = ["a", "b"].map(|name| builder.stage("".to_owned() + name, open().workers(1, 1)));
    let to_b = builder.waiting_link(&a, &b);
    builder.handle(
        &a,
        each(move |event: Event<u32>, _: &Context| {
            let to_b = to_b.clone();
            async move {
                work(millis(10)).await;
                to_b.send(event).await.unwrap();
            }
        }),
    );
    builder.handle(&b, each(|_: Event<u32>, _: &Context| work(millis(30))));
    let entry = builder.entry(&a);
    let graph = builder.start().unwrap();
    (0..50).for_each(|n| entry.try_send(FIRST, n).unwrap());
    let (drained, refused) = tokio::join!(graph.drain(Duration::from_secs(60)), async {
        tokio::task::yield_now().await;
        entry.try_send(FIRST, 50).unwrap_err()
    });
    assert!(drained.is_complete(), "{drained:?}");
    assert_eq!(refused.reason, RefusalReason::Draining);
    let snapshot = graph.snapshot();
    assert_eq!((snapshot.phase, snapshot.stage("b").unwrap().classes[0].completed), ("stopped", 50));
    assert_eq!(entry.try_send(FIRST, 51).unwrap_err().reason, RefusalReason::Stopped);
    assert_eq!(entry.send(FIRST, 51).await.unwrap_err().reason, RefusalReason::Stopped);
    work(millis(1)).await;
    assert!(graph.snapshot().stages.iter().all(|stage| stage.workers == 0));
    assert_eq!(heard.names().iter().filter(|name| ["draining", "stopped"].contains(name)).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_too_long_says_what_is_left() {
    let mut builder = GraphBuilder::new("test");
    let slow = builder.stage("slow", open().workers(1, 1).batch(1, 1));
    builder.handle(&slow, each(|_: Event<u32>, _: &Context| work(Duration::from_secs(3600))));
    let entry = builder.entry(&slow);
    let graph = builder.start().unwrap();
    (0..5).for_each(|n| entry.try_send(FIRST, n).unwrap());
    let drained = graph.drain(Duration::from_secs(10)).await;
    assert_eq!(drained.left, [("slow".to_owned(), 5)]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_when_the_graph_stops_gets_the_event_back() {
    let (parameters, settings) = (Parameters::default(), at_rate(0.1));
    assert!(parameters.min_rate < 0.1);
    let mut builder = GraphBuilder::new("test");
    let stage = builder.stage("stage", settings);
    builder.handle(&stage, nothing());
    let entry = builder.entry(&stage);
    let graph = builder.start().unwrap();
    entry.try_send(FIRST, 1).unwrap();
    let waits = tokio::spawn(async move { entry.send(FIRST, 2).await });
    work(millis(5)).await;
    drop(graph);
    let refused = waits.await.unwrap().unwrap_err();
    assert_eq!((refused.reason, refused.event.body), (RefusalReason::Stopped, 2));
}

//! A service of three stages: parse, look up (blocking, with a pool of four threads), render.
//!
//! `cargo run -p tidegate-stage --example pipeline` sends it more than it can take for two seconds, and prints what
//! became of it and a drawing for Graphviz.

use std::time::Duration;

use tidegate_stage::{
    CallError, ClassId, Context, Entry, Event, Graph, GraphBuilder, GraphError, RefusalReason, Reply, Settings, each,
    each_blocking,
};

/// What a user asks for, and where the answer goes.
#[derive(Debug)]
pub struct Ask {
    text: String,
    reply: Reply<Page>,
}

struct Query {
    key: u64,
    reply: Reply<Page>,
}

struct Found {
    row: String,
    reply: Reply<Page>,
}

/// What a user gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// The answer.
    Found(String),
    /// It is no number.
    BadRequest,
    /// A stage further down refused.
    Busy(Duration),
}

/// Builds and starts the service.
///
/// # Errors
/// When the declaration has a mistake.
pub fn service(target: Duration) -> Result<(Graph, Entry<Ask>), GraphError> {
    let mut graph = GraphBuilder::new("lookup").with_early_refusal(true);
    let parse = graph.stage("parse", Settings::target(target));
    let look_up = graph.stage("look up", Settings::target(target).workers(4, 4).batch(1, 8));
    let render = graph.stage("render", Settings::target(target));

    let to_look_up = graph.link(&parse, &look_up);
    graph.handle(
        &parse,
        each(move |event: Event<Ask>, _: &Context| {
            let to_look_up = to_look_up.clone();
            async move {
                let Ok(key) = event.body.text.trim().parse() else {
                    return event.into_body().reply.send(Page::BadRequest);
                };
                // A refused event comes back, so its user gets an answer.
                if let Err(refused) = to_look_up.try_send(event.map(|ask| Query { key, reply: ask.reply })) {
                    let retry_after = refused.retry_after;
                    refused.event.into_body().reply.send(Page::Busy(retry_after));
                }
            }
        }),
    );

    // A blocking handler waits for room downstream: back-pressure.
    let to_render = graph.waiting_link(&look_up, &render);
    graph.handle_blocking(
        &look_up,
        each_blocking(move |event: Event<Query>, _: &Context| {
            if !event.body.reply.is_awaited() {
                return;
            }
            let found = event.map(|query| Found { row: format!("row {}", query.key), reply: query.reply });
            // Refused only when the service stops: then the reply is dropped, and the user hears it.
            drop(to_render.send_blocking(found));
        }),
    );

    graph.handle(
        &render,
        each(|event: Event<Found>, context: &Context| {
            let quality = context.quality();
            async move {
                let Found { row, reply } = event.into_body();
                let page = if quality < 0.5 { row } else { format!("<h1>{row}</h1>") };
                reply.send(Page::Found(page));
            }
        }),
    );

    let entry = graph.entry_towards(&parse, &look_up);
    Ok((graph.start()?, entry))
}

/// Asks once.
///
/// # Errors
/// When the service does not take it or loses it.
pub async fn ask(entry: &Entry<Ask>, text: &str) -> Result<Page, CallError<Ask>> {
    entry.call(ClassId(0), |reply| Ask { text: text.to_owned(), reply }).await
}

#[tokio::main]
#[allow(dead_code, reason = "tests use the rest of this file as a module")]
async fn main() -> Result<(), GraphError> {
    let (graph, entry) = service(Duration::from_millis(50))?;
    let (mut found, mut refused) = (0, 0);
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    for n in 0..1000 {
        ticks.tick().await;
        match ask(&entry, &n.to_string()).await {
            Ok(Page::Found(_)) => found += 1,
            Err(CallError::Refused(no)) if no.reason == RefusalReason::RateLimit => refused += 1,
            other => println!("{other:?}"),
        }
    }
    println!("{found} found, {refused} refused\n{}", graph.snapshot().to_dot());
    if !graph.drain(Duration::from_secs(5)).await.is_complete() {
        println!("some work was left undone");
    }
    Ok(())
}

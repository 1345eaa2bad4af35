//! The examples work: each is included here as a module and driven.

#[path = "../../examples/axum.rs"]
mod axum_service;
#[path = "../../examples/hyper.rs"]
mod hyper_service;
#[path = "../../examples/pipeline.rs"]
mod pipeline;
#[path = "../../examples/tonic.rs"]
mod tonic_service;

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use tidegate_stage::Admission;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Channel;
use tower::ServiceExt;

use crate::support::at_rate;

/// One request, then no other for ten thousand seconds.
fn one_request(name: &'static str, classes: usize) -> (tidegate_stage::Settings, Admission) {
    let settings = at_rate(0.0001).classes(classes);
    let mut settings = settings;
    settings.parameters.min_rate = 0.0001;
    let admission = Admission::new(name, &settings).unwrap();
    (settings, admission)
}

async fn loopback() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn axum_refuses_by_class_and_shows_its_state() {
    let (settings, _) = one_request("axum", 2);
    let (router, admission) = axum_service::service(&settings).unwrap();
    let get = async |path: &str| {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap()
    };
    let hello = get("/hello").await;
    assert_eq!(hello.status(), StatusCode::OK);
    assert_eq!(hello.into_body().collect().await.unwrap().to_bytes(), "hello\n");
    let refused = get("/hello").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    let seconds: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((9_000..=10_000).contains(&seconds), "{seconds}");
    assert_eq!(get("/checkout").await.status(), StatusCode::OK, "the more important class has a bucket of its own");
    let state = get("/state").await.into_body().collect().await.unwrap().to_bytes();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    assert_eq!(state["classes"][1]["refused"]["rate-limit"], 1);
    // The body of `/checkout` was dropped unread: that request teaches nothing.
    let completed = admission.snapshot().classes.iter().map(|class| class.completed).collect::<Vec<_>>();
    assert_eq!(completed, [0, 1]);
}

#[tokio::test]
async fn hyper_connections_share_the_controller() {
    let (_, admission) = one_request("hyper", 1);
    let (listener, address) = loopback().await;
    let server = tokio::spawn(hyper_service::serve(listener, admission));
    let first = exchange(address).await;
    let second = exchange(address).await;
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n"), "{first}");
    assert!(second.starts_with("HTTP/1.1 503 ") && second.contains("retry-after: "), "{second}");
    assert!(second.contains("\"hyper\" is overloaded for class 1"), "{second}");
    server.abort();
}

async fn exchange(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn tonic_pushes_back() {
    let (_, admission) = one_request("tonic", 1);
    let (listener, address) = loopback().await;
    let server = tokio::spawn(tonic_service::serve(listener, admission.clone()));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = tonic::client::Grpc::new(channel);
    let mut say = async |text: &str| {
        client.ready().await.unwrap();
        let path = tonic::codegen::http::uri::PathAndQuery::from_static("/example.Echo/Say");
        client.unary(tonic::Request::new(text.to_owned()), path, tonic_service::Text).await
    };
    assert_eq!(say("hello").await.unwrap().into_inner(), "hello");
    let status = say("again").await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    let pushback: u64 = status.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap().parse().unwrap();
    assert!(pushback > 9_000_000, "{pushback}");
    assert_eq!(admission.snapshot().classes[0].completed, 1);
    server.abort();
}

#[tokio::test]
async fn the_pipeline_answers_and_drains() {
    // A target that a busy machine meets, too.
    let (graph, entry) = pipeline::service(Duration::from_secs(60)).unwrap();
    let found = pipeline::ask(&entry, "7").await.unwrap();
    assert_eq!(found, pipeline::Page::Found("<h1>row 7</h1>".into()));
    let mut bad = pipeline::ask(&entry, "x").await;
    while let Err(tidegate_stage::CallError::Refused(refused)) = &bad {
        tokio::time::timeout(refused.retry_after, std::future::pending::<()>()).await.unwrap_err();
        bad = pipeline::ask(&entry, "x").await;
    }
    assert_eq!(bad.unwrap(), pipeline::Page::BadRequest);
    let svg = graph.snapshot().to_svg();
    assert!(["parse", "look up", "render"].iter().all(|stage| svg.contains(stage)), "{svg}");
    assert!(graph.drain(Duration::from_secs(30)).await.is_complete());
}

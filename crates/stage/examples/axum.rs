//! An axum service whose controller refuses with 503 and `Retry-After`, with the controller's state under `/state`.
//!
//! `cargo run -p tidegate-stage --example axum`, then `curl -i http://127.0.0.1:3000/hello`.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tidegate_stage::{Admission, AdmissionLayer, AdmissionSnapshot, ClassId, Overloaded, Settings, SettingsError};

/// The service, and its controller.
///
/// # Errors
/// When a setting is out of range.
pub fn service(settings: &Settings) -> Result<(Router, Admission), SettingsError> {
    let admission = Admission::new("axum", settings)?;
    let guarded = AdmissionLayer::new(admission.clone()).classify(class_of).answering(busy).until_body_end();
    let router = Router::new()
        .route("/hello", get(async || "hello\n"))
        .route("/checkout", get(async || "thank you\n"))
        // Only routes above this line are guarded: whoever looks at an overloaded service must get in.
        .route_layer(guarded)
        .route("/state", get(state))
        .with_state(admission.clone());
    Ok((router, admission))
}

/// Who pays goes first.
fn class_of<B>(request: &Request<B>) -> ClassId {
    ClassId(u8::from(request.uri().path() != "/checkout"))
}

fn busy(overloaded: Overloaded) -> Response {
    let retry_after = HeaderValue::from(overloaded.retry_after_seconds());
    let text = "the service is busy, please try again\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, retry_after)], text).into_response()
}

async fn state(State(admission): State<Admission>) -> Json<AdmissionSnapshot> {
    Json(admission.snapshot())
}

#[tokio::main]
#[allow(dead_code, reason = "tests use the rest of this file as a module")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (router, _) = service(&Settings::target(Duration::from_millis(200)).classes(2))?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router).await?;
    Ok(())
}

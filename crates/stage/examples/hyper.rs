//! A plain hyper server. The refusal is a typed error here, and the service turns it into an answer itself.
//!
//! `cargo run -p tidegate-stage --example hyper`, then `curl -i http://127.0.0.1:3000/`.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tidegate_stage::{Admission, AdmissionError, AdmissionLayer, Settings};
use tokio::net::TcpListener;
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;

/// Serves connections until the listener fails. All connections share the one controller.
///
/// # Errors
/// When no connection can be accepted any more.
pub async fn serve(listener: TcpListener, admission: Admission) -> std::io::Result<()> {
    let service = AdmissionLayer::new(admission).layer(service_fn(hello));
    loop {
        let (stream, _) = listener.accept().await?;
        let service = service.clone();
        let answer = hyper::service::service_fn(move |request| {
            let guarded = service.clone();
            async move { Ok::<_, Infallible>(guarded.oneshot(request).await.unwrap_or_else(refusal)) }
        });
        tokio::spawn(async move {
            // A client that breaks off is its own business.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn hello(_request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

fn refusal(error: AdmissionError<Infallible>) -> Response<Full<Bytes>> {
    let overloaded = match error {
        AdmissionError::Overloaded(overloaded) => overloaded,
        AdmissionError::Service(never) => match never {},
    };
    let mut response = Response::new(Full::from(format!("{overloaded}\n")));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(overloaded.retry_after_seconds()));
    response
}

#[tokio::main]
#[allow(dead_code, reason = "tests use the rest of this file as a module")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener, Admission::new("hyper", &Settings::target(Duration::from_millis(200)))?).await?;
    Ok(())
}

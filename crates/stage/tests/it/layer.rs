//! The tower layer around services: whose error it is, and when a response time ends.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use tidegate_stage::{Admission, AdmissionError, AdmissionLayer, ClassId};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::support::{FIRST, at_rate, millis, work};

fn admission(rate: f64) -> Admission {
    Admission::new("service", &at_rate(rate).classes(2)).unwrap()
}

fn response_seconds(admission: &Admission) -> Vec<(u64, f64)> {
    admission.snapshot().classes.iter().map(|class| (class.completed, class.response_seconds)).collect()
}

#[tokio::test(start_paused = true)]
async fn errors_are_typed_and_clones_share_the_controller() {
    let admission = admission(10.0);
    let fails = |n: u32| async move {
        work(millis(20)).await;
        if n == 0 { Err("zero".to_owned()) } else { Ok(n) }
    };
    let service = ServiceBuilder::new()
        .layer(AdmissionLayer::new(admission.clone()).classify(|n: &u32| ClassId((*n > 9) as u8)))
        .service(service_fn(fails));
    assert_eq!(service.clone().oneshot(3).await, Ok(3));
    let error = service.clone().oneshot(3).await.unwrap_err();
    assert_eq!(error.overloaded().unwrap().retry_after, millis(80));
    assert_eq!(service.clone().oneshot(11).await, Ok(11), "the other class");
    work(millis(80)).await;
    assert_eq!(service.oneshot(0).await, Err(AdmissionError::Service("zero".to_owned())));
    let seconds = response_seconds(&admission);
    assert_eq!((seconds[0].0, seconds[1].0), (2, 1), "an error is an end, too");
    assert!((seconds[0].1 - 0.04).abs() < 1e-9, "{seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_teaches_nothing() {
    let admission = admission(10.0);
    let service =
        ServiceBuilder::new().layer(AdmissionLayer::new(admission.clone())).service(service_fn(|(): ()| async move {
            work(Duration::from_secs(9)).await;
            Ok::<_, Infallible>(())
        }));
    assert!(tokio::time::timeout(millis(50), service.oneshot(())).await.is_err());
    let class = &admission.snapshot().classes[0];
    assert_eq!((class.admitted, class.completed), (1, 0));
}

/// A body of two frames, 50 ms apart.
struct Slow(u32, Pin<Box<dyn Future<Output = ()> + Send>>);

impl Body for Slow {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, Infallible>>> {
        if self.0 == 2 {
            return Poll::Ready(None);
        }
        std::task::ready!(self.1.as_mut().poll(cx));
        self.0 += 1;
        self.1 = Box::pin(work(millis(50)));
        Poll::Ready(Some(Ok(Frame::data("part".into()))))
    }
}

async fn slow(_: ()) -> Result<http::Response<Slow>, Infallible> {
    Ok(http::Response::new(Slow(0, Box::pin(work(millis(50))))))
}

#[tokio::test(start_paused = true)]
async fn the_response_time_ends_with_the_response_or_with_its_body() {
    let (by_response, by_body) = (admission(1e3), admission(1e3));
    let service = ServiceBuilder::new().layer(AdmissionLayer::new(by_response.clone())).service(service_fn(slow));
    let response = service.oneshot(()).await.unwrap();
    assert_eq!(response_seconds(&by_response)[0], (1, 0.0));
    drop(response);

    let layer = AdmissionLayer::new(by_body.clone()).until_body_end();
    let service = ServiceBuilder::new().layer(layer).service(service_fn(slow));
    let response = service.clone().oneshot(()).await.unwrap();
    assert_eq!(response_seconds(&by_body)[0].0, 0, "the body is on its way");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "partpart");
    assert_eq!(response_seconds(&by_body)[0], (1, 0.1));
    work(millis(10)).await;
    drop(service.oneshot(()).await.unwrap());
    assert_eq!(response_seconds(&by_body)[0].0, 1, "a client that left teaches nothing");
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_ends_at_once_and_refusals_may_be_answers() {
    let admission = admission(10.0);
    let busy = |_| http::Response::builder().status(503).body(Full::<bytes::Bytes>::default()).unwrap();
    let layer = AdmissionLayer::new(admission.clone()).answering(busy).until_body_end();
    let empty = service_fn(async |(): ()| Ok::<_, Infallible>(http::Response::new(Full::<bytes::Bytes>::default())));
    let service = ServiceBuilder::new().layer(layer).service(empty);
    let statuses = [service.clone().oneshot(()).await.unwrap(), service.oneshot(()).await.unwrap()].map(|r| r.status());
    assert_eq!(statuses.map(|status| status.as_u16()), [200, 503]);
    assert_eq!(response_seconds(&admission)[0].0, 1);
    let permit = admission.admit(FIRST);
    assert_eq!(permit.err().unwrap().class, FIRST);
}

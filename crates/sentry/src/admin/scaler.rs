//! KEDA's external scaler (`externalscaler.proto`): how many servers an application needs, told to who scales them.
//!
//! *Intuition.* KEDA asks every few seconds what is needed, for a metric whose target is one, so that the number is
//! that of pods; and it wants to hear at once when there is something to do again, should there be none of them.
//! *Awkward cases.* A number that is not known is an error and not zero: KEDA then has its fallback.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use prost::Message;

use super::Admin;
use super::grpc::{INVALID_ARGUMENT, NOT_FOUND, answered, failed, not_grpc};
use crate::app::App;
use crate::grpc::{UNAVAILABLE, UNIMPLEMENTED, framed};
use crate::health::grpc::message;
use crate::need::Need;

/// The path of its calls.
pub(super) const PATH: &str = "/externalscaler.ExternalScaler/{call}";

/// Bytes that a request may have: an object's name and what its trigger says.
pub(super) const LONGEST: usize = 16 * 1024;

/// What the metric is called.
const METRIC: &str = "servers-needed";

/// How often it is looked whether there is something to do.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often it is said again: a connection on which nothing is said for ten seconds is taken for one that waits for an
/// answer, and closed.
const AGAIN: Duration = Duration::from_secs(5);

/// Which application it is about, in a trigger's metadata.
const APPLICATION: &str = "application";

#[derive(Clone, PartialEq, Message)]
struct ScaledObject {
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct MetricsRequest {
    #[prost(message, optional, tag = "1")]
    object: Option<ScaledObject>,
}

#[derive(Clone, PartialEq, Message)]
struct Activity {
    #[prost(bool, tag = "1")]
    is_active: bool,
}

#[derive(Clone, PartialEq, Message)]
struct MetricSpecs {
    #[prost(message, repeated, tag = "1")]
    specs: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct MetricValues {
    #[prost(message, repeated, tag = "1")]
    values: Vec<Metric>,
}

/// A metric's name with its target, or its value.
#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    /// For a KEDA of before, which knows whole numbers only.
    #[prost(int64, tag = "2")]
    whole: i64,
    #[prost(double, tag = "3")]
    number: f64,
}

/// Answers a call.
pub(super) async fn call(
    State(admin): State<Arc<Admin>>,
    Path(call): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(refused) = not_grpc(&headers) {
        return refused;
    }
    match respond(&admin, &call, &body) {
        Ok(response) => response,
        Err((status, why)) => failed(status, why),
    }
}

/// How a call fails: its status, and why.
type Failure = (u8, &'static str);

fn respond(admin: &Admin, call: &str, body: &[u8]) -> Result<Response, Failure> {
    let object = |body| ScaledObject::decode(body).ok();
    let about = match call {
        "GetMetrics" => message(body).and_then(|body| MetricsRequest::decode(body).ok()?.object),
        "IsActive" | "StreamIsActive" | "GetMetricSpec" => message(body).and_then(object),
        // `StreamMetricSpec` among others: without it KEDA asks for what does not change anyhow.
        _ => return Err((UNIMPLEMENTED, "no such call")),
    };
    let app = application(admin, &about.ok_or((INVALID_ARGUMENT, "this is no request of externalscaler.proto"))?)?;
    let metric = |number: u32| vec![Metric { name: METRIC.to_owned(), whole: number.into(), number: number.into() }];
    Ok(match call {
        "IsActive" => answered(framed(&Activity { is_active: Need::of(&app).is_active })),
        "StreamIsActive" => told(app),
        "GetMetricSpec" => answered(framed(&MetricSpecs { specs: metric(1) })),
        _ => {
            let unknown = (UNAVAILABLE, "it is not known yet what requests cost and what servers can do");
            let servers = Need::of(&app).servers.ok_or(unknown)?;
            answered(framed(&MetricValues { values: metric(servers) }))
        }
    })
}

/// Which one it is about; it need not be said where there is one only.
fn application(admin: &Admin, object: &ScaledObject) -> Result<Arc<App>, Failure> {
    match object.metadata.get(APPLICATION) {
        Some(name) => admin.board.application(name).ok_or((NOT_FOUND, "no application has this name")),
        None => match admin.board.applications().as_slice() {
            [only] => Ok(only.clone()),
            _ => Err((INVALID_ARGUMENT, "there are several: name one as application in the trigger's metadata")),
        },
    }
}

/// Says whether there is something to do, now, whenever that changes and every few seconds, for as long as somebody
/// listens.
fn told(app: Arc<App>) -> Response {
    let said = stream::unfold((app, None), |(app, told)| async move {
        let mut waited = Duration::ZERO;
        loop {
            let is_active = Need::of(&app).is_active;
            if told != Some(is_active) || waited >= AGAIN {
                return Some((Ok::<_, Infallible>(framed(&Activity { is_active })), (app, Some(is_active))));
            }
            tokio::time::sleep(LOOK_EVERY).await;
            waited += LOOK_EVERY;
        }
    });
    ([(header::CONTENT_TYPE, "application/grpc")], Body::from_stream(said)).into_response()
}

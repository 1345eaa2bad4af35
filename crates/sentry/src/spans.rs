//! Traces: what a request's way through the sentry looked like, for whoever follows it across services.
//!
//! With the feature `otel` and `[traces]` in the configuration every sampled request becomes three spans
//! (OpenTelemetry, by OTLP over HTTP): the request, its wait for admission, and its time at a server; and the
//! server gets a `traceparent` (W3C Trace Context) whose parent is the last of these. Without either, nothing here
//! does anything, and `traceparent` and `tracestate` pass as they came.

#[cfg(feature = "otel")]
mod collector;
#[cfg(feature = "otel")]
mod context;
#[cfg(feature = "otel")]
mod export;
#[cfg(not(feature = "otel"))]
mod off;

#[cfg(feature = "otel")]
pub(crate) use export::{Spans, Trace};
#[cfg(not(feature = "otel"))]
pub(crate) use off::{Spans, Trace};

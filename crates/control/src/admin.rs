//! The admin API of the control plane, on loopback: state, plan, audit log, metrics.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use axum::extract::{Query, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::Value;
use tidegate_visitors::{Bounds, Visitors};
use tokio::net::TcpListener;
use tracing::error;

use crate::daemon::{Handle, Question};

/// Serves until the daemon ends. Gives the address, with the port that the system chose if 0 was asked for.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn serve(listen: SocketAddr, handle: Handle) -> std::io::Result<SocketAddr> {
    serve_within(listen, handle, Bounds::ADMIN).await
}

async fn serve_within(listen: SocketAddr, handle: Handle, bounds: Bounds) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/api/status", get(status))
        .route("/api/state", get(state))
        .route("/api/plan", get(plan))
        .route("/api/audit", get(audit))
        .route("/metrics", get(metrics))
        .layer(axum::middleware::from_fn(check_name))
        .with_state(handle);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(Visitors::new(listener, bounds), router).await {
            error!(%address, "the admin API ended: {error}");
        }
    });
    Ok(address)
}

/// Lets a request pass that does not come from a foreign web page: one that makes its own name point at 127.0.0.1 (DNS
/// rebinding) still sends that name.
async fn check_name(request: Request, next: Next) -> Response {
    if names_this_machine(request.headers()) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "ask by address or as localhost\n").into_response()
    }
}

fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let is_own = |name: &str| {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
    };
    host.is_some_and(|host| is_own(host.host()))
}

#[derive(Deserialize)]
struct After {
    #[serde(default)]
    after: u64,
}

async fn status(State(handle): State<Handle>) -> Response {
    json(handle.ask(Question::Status).await)
}

async fn state(State(handle): State<Handle>) -> Response {
    json(handle.ask(Question::State).await)
}

async fn plan(State(handle): State<Handle>) -> Response {
    json(handle.ask(Question::Plan).await)
}

async fn audit(State(handle): State<Handle>, Query(after): Query<After>) -> Response {
    json(handle.ask(Question::Audit(after.after)).await)
}

async fn metrics(State(handle): State<Handle>) -> Response {
    match handle.ask(Question::Metrics).await {
        Some(state) => ([("content-type", "text/plain; version=0.0.4")], render(&state)).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn json(value: Option<Value>) -> Response {
    match value {
        Some(Value::Null) => {
            (StatusCode::SERVICE_UNAVAILABLE, "not known here now; /api/status says why\n").into_response()
        }
        Some(value) => Json(value).into_response(),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// States of posts, and how the state has them.
const POST_STATES: [(&str, &str); 5] =
    [("free", "free"), ("coming", "coming"), ("serving", "serving"), ("leaving", "draining"), ("failed", "failed")];

fn render(state: &Value) -> String {
    let mut text = String::new();
    let flag = |is: bool| u8::from(is);
    family(&mut text, "leads", "gauge", "1 for the one that leads.");
    let _ = writeln!(text, "tidegate_control_leads {}", flag(state["role"] == "leads"));
    family(&mut text, "store_available", "gauge", "0 while the store does not answer.");
    let _ = writeln!(text, "tidegate_control_store_available {}", flag(state["store_away"].is_null()));
    if state["role"] != "leads" {
        return text;
    }
    let list = |key: &str| state[key].as_array().cloned().unwrap_or_default();
    for (key, help) in [
        ("serving", "Servers that serve."),
        ("coming", "Servers that are on their way."),
        ("wanted", "Servers that are wanted."),
    ] {
        family(&mut text, &format!("servers_{key}"), "gauge", help);
        for application in list("applications") {
            let name = application["application"].as_str().unwrap_or_default().replace(['"', '\\', '\n'], "_");
            let _ = writeln!(text, "tidegate_control_servers_{key}{{application=\"{name}\"}} {}", application[key]);
        }
    }
    let connected = list("sentries").iter().filter(|sentry| sentry["connected"] == true).count();
    let cut_off = list("sentries").len() - connected;
    family(&mut text, "sentries", "gauge", "Sentries that are known, by whether they are connected.");
    let _ = writeln!(text, "tidegate_control_sentries{{state=\"connected\"}} {connected}");
    let _ = writeln!(text, "tidegate_control_sentries{{state=\"cut-off\"}} {cut_off}");
    let posts = list("posts");
    if !posts.is_empty() {
        family(&mut text, "posts", "gauge", "Posts of sentries that the control plane starts, by state.");
        for (state, key) in POST_STATES {
            let is_so = |place: &&Value| place.as_str() == Some(key) || place.get(key).is_some();
            let _ =
                writeln!(text, "tidegate_control_posts{{state=\"{state}\"}} {}", posts.iter().filter(is_so).count());
        }
    }
    family(&mut text, "steps_pending", "gauge", "Steps that were decided and are not done yet.");
    let _ = writeln!(text, "tidegate_control_steps_pending {}", state["pending"]);
    for (name, value) in state["counts"].as_object().cloned().unwrap_or_default() {
        let help = match name.as_str() {
            "inputs" => "Inputs that were written down.",
            "steps" => "Steps given to the provider, each try counted.",
            "provider_failures" => "Steps that the provider failed.",
            "reports" => "Reports of sentries.",
            "sentries_refused" => "Sentries that were refused.",
            "dns_truncated" => "DNS answers by UDP that were cut because their network gets too many.",
            "dns_dropped" => "DNS answers by UDP that were not sent because their network gets too many.",
            _ => "A count; docs/control.md says of what.",
        };
        family(&mut text, &format!("{name}_total"), "counter", help);
        let _ = writeln!(text, "tidegate_control_{name}_total {value}");
    }
    text
}

/// The head of a family; writing into a string cannot fail.
fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP tidegate_control_{name} {help}\n# TYPE tidegate_control_{name} {kind}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const HALF: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: loc";

    /// The admin API of a daemon that has ended, and a way to connect to it.
    async fn running(bounds: Bounds) -> SocketAddr {
        let handle = Handle(mpsc::channel(1).0);
        serve_within(SocketAddr::from(([127, 0, 0, 1], 0)), handle, bounds).await.expect("listens")
    }

    async fn connect(to: SocketAddr, say: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(to).await.expect("connects");
        stream.write_all(say).await.expect("sends");
        stream
    }

    async fn ask(stream: &mut TcpStream) {
        stream.write_all(ASK).await.expect("sends");
        let (mut said, mut buffer) = (Vec::new(), [0; 1024]);
        while !said.ends_with(b"ok\n") {
            let read = tokio::time::timeout(LONG, stream.read(&mut buffer)).await.expect("an answer in time");
            let read = read.expect("stays");
            assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&buffer[..read]);
        }
    }

    /// Reads until the other side has closed it.
    async fn closed(mut stream: TcpStream) {
        let end = async { while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {} };
        tokio::time::timeout(LONG, end).await.expect("it is closed");
    }

    #[tokio::test]
    async fn who_says_nothing_keeps_nobody_out() {
        let address = running(Bounds::ADMIN).await;
        let mut asking = connect(address, b"").await;
        let mut others = Vec::new();
        for number in 0..Bounds::ADMIN.seats + 44 {
            others.push(connect(address, if number % 2 == 0 { b"" } else { HALF }).await);
            ask(&mut asking).await;
        }
        // When all seats were taken, the first made room for the last; the asking one did not.
        for silent in others.drain(..40) {
            closed(silent).await;
        }
        ask(&mut connect(address, b"").await).await;
        ask(&mut asking).await;
    }

    #[tokio::test]
    async fn silence_and_half_a_head_end() {
        let short = Duration::from_millis(20);
        let address = running(Bounds { rest: short, ..Bounds::ADMIN }).await;
        closed(connect(address, b"").await).await;
        let address = running(Bounds { to_answer: short, ..Bounds::ADMIN }).await;
        closed(connect(address, HALF).await).await;
        ask(&mut connect(address, b"").await).await;
    }

    #[test]
    fn a_rebound_name_is_refused() {
        let of =
            |host: &str| names_this_machine(&HeaderMap::from_iter([(header::HOST, host.parse().expect("a value"))]));
        for own in ["127.0.0.1:9911", "localhost", "LOCALHOST:1", "[::1]:9911", "[::1]"] {
            assert!(of(own), "{own}");
        }
        for foreign in ["evil.example", "evil.example:9911", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert!(!of(foreign), "{foreign}");
        }
        assert!(names_this_machine(&HeaderMap::new()));
    }

    #[test]
    fn metrics_are_text_with_labels() {
        let text = render(&json!({
            "applications": [{ "application": "shop", "serving": 3, "coming": 1, "wanted": 4 }],
            "sentries": [{ "connected": true }, { "connected": false }],
            "posts": ["free", { "serving": { "application": 0, "since": 1 } }, "free"],
            "role": "leads",
            "store_away": "the API server does not answer",
            "pending": 1,
            "counts": { "reports": 17 },
        }));
        assert!(text.contains("tidegate_control_leads 1\n") && text.contains("control_store_available 0\n"));
        assert!(text.contains("tidegate_control_servers_serving{application=\"shop\"} 3\n"));
        assert!(text.contains("tidegate_control_sentries{state=\"cut-off\"} 1\n"));
        assert!(text.contains("posts{state=\"free\"} 2\n") && text.contains("posts{state=\"serving\"} 1\n"), "{text}");
        let head = "# HELP tidegate_control_reports_total Reports of sentries.\n# TYPE tidegate_control_reports_total counter\n";
        assert!(text.contains(head), "{text}");
        assert!(text.contains("tidegate_control_reports_total 17\n") && text.contains("steps_pending 1\n"));
    }
}

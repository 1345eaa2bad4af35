//! Active health checks: every server is asked in turn, with a request or just a connection. Never policed.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use http::{Request, header};
use tidegate_engine::Status;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tracing::warn;

use crate::app::App;
use crate::in_force::Server;
use crate::transport::Transport;
use crate::upstream::connect::{is_local, open};

/// After so many good checks in a row an earlier ejection weighs less.
const CALM: u32 = 10;

/// Good and failed checks in a row, one of which is zero.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    good: u32,
    failed: u32,
}

/// Checks an application's servers, forever: a round of checks side by side, a pause, the next round.
pub(crate) async fn run(app: Arc<App>) {
    let mut streaks: HashMap<String, Streak> = HashMap::new();
    loop {
        let live = app.live();
        let health = &live.config.health;
        let mut round = JoinSet::new();
        for server in live.servers().filter(|server| server.status() != Status::Draining).cloned() {
            let (path, timeout) = (health.path.clone(), health.timeout);
            round.spawn_local(async move {
                let check = tokio::time::timeout(timeout, check(&server, path.as_deref())).await;
                if let Ok(Err(error)) = &check
                    && error.kind() == io::ErrorKind::InvalidData
                    && server.health() == Status::Up
                {
                    warn!(server = server.name, %error, "a server does not pass as the one that it should be");
                }
                let good = match check {
                    // Nothing was learned of the server.
                    Ok(Err(error)) if is_local(&error) => None,
                    check => Some(matches!(check, Ok(Ok(true)))),
                };
                (server, good)
            });
        }
        while let Some(result) = round.join_next().await {
            let Ok((server, Some(good))) = result else { continue };
            let streak = streaks.entry(server.name.clone()).or_default();
            *streak = streak.after(good);
            judge(&app, &server, *streak);
        }
        streaks.retain(|name, _| live.servers().any(|server| server.name == *name));
        tokio::time::sleep(health.interval).await;
    }
}

fn judge(app: &App, server: &Server, streak: Streak) {
    let live = app.live();
    let health = &live.config.health;
    match server.health() {
        Status::Up if streak.failed >= health.fall.max(1) => app.set_status(server.id, Status::Down),
        Status::Up if streak.good > 0 && streak.good.is_multiple_of(CALM) => server.blame.calm(),
        Status::Down if streak.good >= health.rise.max(1) && server.blame.may_return(app.now()) => {
            server.blame.succeeded();
            app.set_status(server.id, Status::Up);
        }
        _ => {}
    }
}

impl Streak {
    fn after(self, good: bool) -> Streak {
        if good {
            Streak { good: self.good.saturating_add(1), failed: 0 }
        } else {
            Streak { good: 0, failed: self.failed.saturating_add(1) }
        }
    }
}

/// Whether a server answers: below 400 to a request for `path`, or at all to a connection.
async fn check(server: &Server, path: Option<&str>) -> io::Result<bool> {
    let (mut io, _) = open(server).await?;
    let Some(path) = path else { return Ok(true) };
    if server.http2 {
        return check_http2(io, server, path).await;
    }
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {}\r\nuser-agent: tidegate-health\r\nconnection: close\r\n\r\n",
        server.at
    );
    io.write_all(head.as_bytes()).await?;
    io.flush().await?;
    let mut line = [0; 12];
    io.read_exact(&mut line).await?;
    Ok(answers_well(&line))
}

/// The same by HTTP/2, on a connection of its own.
async fn check_http2(io: Transport, server: &Server, path: &str) -> io::Result<bool> {
    let scheme = if server.tls.is_some() { "https" } else { "http" };
    let (mut sender, connection) = h2::client::handshake(io).await.map_err(io::Error::other)?;
    let request = Request::get(format!("{scheme}://{}{path}", server.at)).header(header::USER_AGENT, "tidegate-health");
    let request = request.body(()).map_err(io::Error::other)?;
    let (answer, _) = sender.send_request(request, true).map_err(io::Error::other)?;
    tokio::select! {
        answer = answer => Ok(answer.is_ok_and(|answer| answer.status().as_u16() < 400)),
        _ = connection => Ok(false),
    }
}

/// `HTTP/1.x 2..` or `3..`.
fn answers_well(line: &[u8; 12]) -> bool {
    line.starts_with(b"HTTP/1.") && matches!(line[9], b'2' | b'3') && line[10..].iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streak_counts_one_kind_only() {
        let streak = Streak::default().after(true).after(true);
        assert_eq!((streak.good, streak.failed), (2, 0));
        let streak = streak.after(false);
        assert_eq!((streak.good, streak.failed), (0, 1));
    }

    #[test]
    fn an_answer_below_400_is_good() {
        assert!(answers_well(b"HTTP/1.1 200"));
        assert!(answers_well(b"HTTP/1.0 302"));
        assert!(!answers_well(b"HTTP/1.1 404"));
        assert!(!answers_well(b"HTTP/1.1 503"));
        assert!(!answers_well(b"garbage here"));
    }
}

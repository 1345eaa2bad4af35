//! Clients choose URLs; what is kept of them has bounds.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_classify::RequestView;
use tidegate_engine::{Decision, Outcome, Timestamp};

use super::board;
use crate::board::Board;
use crate::metrics;

const URLS: u32 = 1_000_000;
/// After so many requests, 40 s, all that is learned is there to see.
const SETTLED: u32 = 20_000;
/// After so many the bounds are reached.
const FIRST: u32 = 100_000;
/// What a table without bounds would need for the rest, at 32 bytes a URL.
const GROWTH: u64 = 32 * (URLS - FIRST) as u64;

pub(super) struct Asked {
    pub(super) path: String,
    pub(super) agent: String,
}

impl RequestView for Asked {
    fn method(&self) -> &str {
        "GET"
    }

    fn host(&self) -> Option<&str> {
        Some(&self.agent)
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn header(&self, _: &str) -> Option<&[u8]> {
        Some(self.agent.as_bytes())
    }

    fn client(&self) -> Option<IpAddr> {
        None
    }
}

#[test]
fn a_million_urls_grow_neither_metrics_nor_memory() {
    let board = board();
    see(&board, 0..SETTLED, 10);
    let (lines, state) = (metric_lines(&board), state_bytes(&board));
    see(&board, SETTLED..FIRST, URLS);
    let (urls, memory) = (urls(&board), resident());
    see(&board, FIRST..URLS, URLS);
    assert_eq!(metric_lines(&board), lines, "no URL makes a series");
    assert!(state_bytes(&board) < state + 1000, "nor a line of the state");
    let kept = self::urls(&board);
    assert!(kept < URLS as usize / 10 && kept <= urls.max(65_536), "the table holds {kept} URLs, before {urls}");
    let grown = resident().saturating_sub(memory);
    assert!(grown < GROWTH, "{} more URLs took {grown} bytes", URLS - FIRST);
    assert_eq!(board.applications()[0].snapshot().stale_tickets, 0);
}

/// Requests one after the other, 500 a second of the engine's time, for at most so many URLs, from as many hosts.
fn see(board: &Board, numbers: std::ops::Range<u32>, urls: u32) {
    let apps = board.applications();
    let (app, live) = (&apps[0], apps[0].live());
    let mut core = app.lock();
    for number in numbers {
        let at = Timestamp::from_nanos(u64::from(number) * 2_000_000);
        while core.controller.poll_timeout().is_some_and(|(due, _)| due <= at) {
            core.controller.handle_timeout(at);
        }
        let number = number % urls;
        let asked = Asked { path: format!("/item/{number}?q={number}"), agent: format!("host-{number}") };
        let request = live.classifier.classify(&asked);
        if let Decision::Admit { ticket, .. } = core.controller.handle_arrival(at, request) {
            core.controller.handle_completion(at + Duration::from_millis(1), ticket, Outcome::answered());
        }
    }
}

fn metric_lines(board: &Arc<Board>) -> usize {
    metrics::render(board).lines().count()
}

fn state_bytes(board: &Board) -> usize {
    serde_json::to_string(&board.applications()[0].snapshot()).expect("JSON").len()
}

fn urls(board: &Board) -> usize {
    board.applications()[0].snapshot().urls
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

//! The whole service: stages with admission control in front of the work.

use std::time::Duration;

use http::HeaderMap;
use serde_json::{Value, json};
use tidegate_stage::{CallError, GraphError, RefusalReason, Refused};
use tokio::time::timeout_at;

use crate::database::{Database, DatabaseError};
use crate::pages::escape;
use crate::policy::{Job, Options, Policy, Stages};
use crate::pool::Pool;
use crate::request::{Request, Trouble};
use crate::work::{Served, Work};

/// The running service.
pub struct Service {
    work: Work,
    stages: Stages,
    classes: Classes,
    options: Options,
}

/// How a request's class is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes {
    /// How many there are.
    pub count: u8,
    /// Whether the header `Tidegate-Class` is believed. Only where clients cannot set it, or nobody minds.
    pub by_header: bool,
}

impl Service {
    /// Starts the stages on this database. Inside a runtime; dropping the service stops them.
    ///
    /// # Errors
    /// When the options make no stages: a target of zero, say.
    pub fn start(
        database: Database,
        options: Options,
        by_header: bool,
        render_samples: u32,
    ) -> Result<Service, GraphError> {
        let pool = Pool::new(database, options.connections, options.timeout);
        let work = Work::new(pool, render_samples);
        let stages = Stages::start(&options, &work)?;
        let classes = Classes { count: options.classes, by_header };
        Ok(Service { work, stages, classes, options })
    }

    /// Answers a request, or says why not, at its deadline at the latest.
    ///
    /// # Errors
    /// What [`Trouble`] lists.
    pub async fn serve(&self, request: Request) -> Result<Served, Trouble> {
        let (deadline, class) = (request.deadline, Job::class(&request));
        let entry = self.stages.entry(request.call.kind());
        let call = entry.call(class, |reply| Job::new(request, reply));
        match timeout_at(deadline, call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(CallError::Refused(refused))) => Err(busy(&refused)),
            Ok(Err(error)) => Err(Trouble::Failed(error.to_string())),
            Err(_) => {
                let waited = format!("{} s in the queue of {}", self.options.timeout.as_secs_f64(), entry.stage());
                Err(DatabaseError::TimedOut(waited).into())
            }
        }
    }

    /// Takes no more requests and finishes what it has, for at most `patience`.
    pub async fn drain(&self, patience: Duration) {
        let drained = self.stages.graph.drain(patience).await;
        for (stage, requests) in drained.left {
            eprintln!("warning: {requests} requests of {stage} were given up");
        }
    }

    /// How classes are known.
    pub fn classes(&self) -> Classes {
        self.classes
    }

    /// A request's time.
    pub fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Everything about the running stages and the connections.
    pub fn state(&self) -> Value {
        let policy = match self.options.policy {
            Policy::Aimd => "aimd".to_owned(),
            Policy::Single => "single".to_owned(),
            Policy::None => "none".to_owned(),
            Policy::Limit(limit) => format!("limit={limit}"),
        };
        json!({ "policy": policy, "graph": self.stages.graph.snapshot(), "database": self.work.pool().state() })
    }

    /// A drawing of the running stages, as SVG.
    pub fn drawing(&self) -> String {
        self.stages.graph.snapshot().to_svg()
    }

    /// Their metrics, as OpenMetrics text.
    pub fn metrics(&self) -> String {
        tidegate_stage::render_metrics(&[self.stages.graph.snapshot()], &[])
    }

    /// The running stages as a table, in HTML.
    pub fn table(&self) -> String {
        let mut rows = String::new();
        for stage in self.stages.graph.snapshot().stages {
            for class in &stage.classes {
                let percentile = class.percentile.map_or("-".to_owned(), |seconds| format!("{:.0} ms", seconds * 1e3));
                let rate = if stage.policing { format!("{:.1}/s", class.rate) } else { "any".to_owned() };
                let figures = [
                    class.class.to_string(),
                    rate,
                    percentile,
                    class.admitted.to_string(),
                    class.refused_in_all().to_string(),
                    stage.waiting.to_string(),
                    format!("{} of {}", stage.busy, stage.workers),
                    format!("{:.2}", stage.quality),
                ];
                let cells: String = figures.iter().map(|cell| format!("<td class=\"number\">{cell}</td>")).collect();
                rows += &format!("<tr><th scope=\"row\">{}</th>{cells}</tr>\n", escape(&stage.name));
            }
        }
        let heads = ["class", "admits", "p90", "admitted", "refused", "waiting", "busy workers", "quality"];
        let heads: String =
            heads.iter().map(|head| format!("<th scope=\"col\" class=\"number\">{head}</th>")).collect();
        let pool = self.work.pool().state();
        format!(
            "<table><thead><tr><th scope=\"col\">stage</th>{heads}</tr></thead><tbody>\n{rows}</tbody></table>\
             <p>Connections to the database: {} of {} in use, {} requests wait for one.</p>",
            pool.in_use, pool.connections, pool.waiting
        )
    }
}

fn busy(refused: &Refused<Job>) -> Trouble {
    let why = match refused.reason {
        RefusalReason::RateLimit => "it lets in only as many requests of this kind as it can answer soon",
        RefusalReason::QueueFull => "too many requests of this kind are waiting",
        RefusalReason::Draining | RefusalReason::Stopped => "it is shutting down",
        _ => "it did not take the request in time",
    };
    Trouble::Busy {
        stage: refused.stage.to_string(),
        reason: refused.reason.name(),
        why: why.to_owned(),
        retry_after: refused.retry_after,
    }
}

impl Classes {
    /// The class of a request: what the header says, where it is believed; else the account's, which the session's
    /// token begins with; else the last. A token with a forged class belongs to no session, and gets nothing for it.
    pub fn of(self, headers: &HeaderMap, token: Option<&str>) -> u8 {
        let header = headers.get("tidegate-class").filter(|_| self.by_header).and_then(|value| value.to_str().ok());
        let said = header.or_else(|| token?.split_once('-').map(|(class, _)| class));
        said.and_then(|class| class.trim().parse().ok()).map_or(self.count, |class: u8| class.clamp(1, self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_header_and_token() {
        let headers: HeaderMap = [("tidegate-class".parse().unwrap(), "1".parse().unwrap())].into_iter().collect();
        let classes = Classes { count: 2, by_header: true };
        assert_eq!(classes.of(&headers, Some("2-x")), 1);
        assert_eq!(Classes { by_header: false, ..classes }.of(&headers, Some("2-x")), 2);
        assert_eq!(classes.of(&HeaderMap::new(), Some("1-x")), 1);
        assert_eq!(classes.of(&HeaderMap::new(), Some("9-x")), 2);
        assert_eq!(classes.of(&HeaderMap::new(), None), 2);
    }
}

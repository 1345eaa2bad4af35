//! What must hold behind a fault, of the sentry, its peer and the control plane.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::site::{SERVERS, Site, until};
use crate::checks::Check;

/// Until the sentry has the orders in force: it waits for an answer for 3 s and between two tries for 5 s at most, is
/// told in the next period of 0.2 s, and what was lost meanwhile is sent again by TCP within 4 s.
const FOLLOWS: Duration = Duration::from_secs(13);
/// Until peers hear each other: they speak 20 times a second, and one that begins is reckoned with after one.
const HEARS: Duration = Duration::from_secs(3);
/// Who was not heard for so long counts as gone, seconds.
const GONE: f64 = 1.0;

/// What was known before a fault.
pub struct Before {
    audit: Vec<Value>,
    places: Value,
    term: u64,
    applied: (u64, u64),
    /// How often the sentry had lost the control plane.
    cuts: u64,
    /// How many lives the control plane has had.
    target_ms: u64,
}

impl Before {
    /// As it is now.
    ///
    /// # Errors
    /// When somebody does not say.
    pub fn of(site: &Site) -> Result<Before> {
        let company = site.company()?;
        let state = company.control("state")?;
        let link = site.state()?["control"].clone();
        Ok(Before {
            audit: entries(&company.control("audit")?)?,
            places: state["servers"].clone(),
            term: number(&state, "term")?,
            applied: (number(&link, "term")?, number(&link, "revision")?),
            cuts: number(&link, "cuts")?,
            target_ms: company.target_ms(),
        })
    }

    /// What must hold now, everything in words with what was found.
    ///
    /// # Errors
    /// When somebody does not say.
    pub fn checks(&self, site: &Site, keeps_line: bool) -> Result<Vec<Check>> {
        let mut checks = Vec::new();
        let missing = awaited(FOLLOWS, || has_orders(site))?;
        checks.push(check("the sentry is connected and has the orders in force", missing));
        checks.push(check("nothing that the control plane said is taken back", self.taken_back(site)?));
        checks.push(check("the peers hear each other", awaited(HEARS, || deaf(site))?));
        checks.push(check("no permit is lost or doubled", permits(site)?));
        if keeps_line {
            let cuts = number(&site.state()?["control"], "cuts")? - self.cuts;
            let problem = (cuts > 0).then(|| format!("cut off {cuts} times"));
            checks.push(check("the sentry was never cut off", problem));
        }
        Ok(checks)
    }

    /// What the control plane has forgotten, or the sentry.
    fn taken_back(&self, site: &Site) -> Result<Option<String>> {
        let company = site.company()?;
        let state = company.control("state")?;
        let audit = entries(&company.control("audit")?)?;
        let term = number(&state, "term")?;
        let link = &site.state()?["control"];
        let applied = (number(link, "term")?, number(link, "revision")?);
        let began_again = company.target_ms() != self.target_ms;
        Ok(if !audit.starts_with(&self.audit) {
            Some(format!(
                "of {} entries of the audit log some are gone; there are {} now",
                self.audit.len(),
                audit.len()
            ))
        } else if !audit.is_sorted_by_key(|entry| entry["at"].as_u64()) {
            Some("time went back in the audit log".to_owned())
        } else if state["servers"] != self.places {
            Some(format!("servers were {} and are {}", self.places, state["servers"]))
        } else if term < self.term + u64::from(began_again) {
            Some(format!("term {term} after {}", self.term))
        } else if applied < self.applied {
            Some(format!("orders {applied:?} after {:?}", self.applied))
        } else {
            None
        })
    }
}

/// What the sentry lacks of the control plane's last orders.
///
/// # Errors
/// When the sentry does not say.
pub fn has_orders(site: &Site) -> Result<Option<String>> {
    let company = site.company()?;
    let state = site.state()?;
    let (link, app) = (&state["control"], &state["applications"][0]);
    // It may have just begun.
    let Ok(control) = company.control("state") else { return Ok(Some("the control plane does not answer".to_owned())) };
    let told = &control["sentries"][0];
    let up = app["servers"].as_array().into_iter().flatten().filter(|server| server["status"] == "up").count();
    let target_ms = app["target"].as_f64().map(|target| (target * 1e3).round() as u64);
    let applied = serde_json::json!([link["term"], link["revision"]]);
    Ok(if link["connected"] != true || told["connected"] != true {
        Some("the sentry is cut off".to_owned())
    } else if told["told"] != applied || told["applied"] != applied || link["term"] != control["term"] {
        Some(format!("told {}, applied {applied}", told["told"]))
    } else if up != SERVERS || target_ms != Some(company.target_ms()) {
        Some(format!("{up} servers are up, and the target is {target_ms:?} ms"))
    } else {
        None
    })
}

/// Whether the sentry says that it is cut off from the control plane.
///
/// # Errors
/// When it does not answer.
pub fn is_cut_off(site: &Site) -> Result<bool> {
    Ok(site.state()?["control"]["connected"] == false)
}

/// Whether sentry (0) or peer (1) has not heard the other one for so long that it counts as gone.
///
/// # Errors
/// When it does not answer.
pub fn hears_nobody(site: &Site, at: usize) -> Result<bool> {
    let state = if at == 0 { site.state()? } else { site.company()?.peer()? };
    let all = state["peers"]["sentries"].as_array().context("/api/state has no peers")?.clone();
    let heard = |peer: &Value| peer["heard_seconds_ago"].as_f64().is_some_and(|ago| ago < GONE);
    Ok(!all.iter().any(|peer| peer["is_self"] == false && heard(peer)))
}

fn deaf(site: &Site) -> Result<Option<String>> {
    let all = ["the sentry", "the peer"].into_iter().enumerate();
    let deaf: Vec<&str> = all
        .map(|(at, name)| Ok(hears_nobody(site, at)?.then_some(name)))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    Ok((!deaf.is_empty()).then(|| format!("{} hears nobody", deaf.join(" and "))))
}

/// What is wrong with the counts of either sentry at rest: every request that came has ended once, no place is held.
fn permits(site: &Site) -> Result<Option<String>> {
    for (name, state) in [("the sentry", site.state()?), ("the peer", site.company()?.peer()?)] {
        if let Some(problem) = unbalanced(&state["applications"][0])? {
            return Ok(Some(format!("{name}: {problem}")));
        }
    }
    Ok(None)
}

fn unbalanced(app: &Value) -> Result<Option<String>> {
    let stale = number(app, "stale_tickets")?;
    if stale > 0 {
        return Ok(Some(format!("{stale} tickets were used twice")));
    }
    for server in app["servers"].as_array().into_iter().flatten() {
        let held = number(server, "in_flight")?;
        if held > 0 {
            return Ok(Some(format!("{held} places are held at {}", server["address"])));
        }
    }
    for class in app["classes"].as_array().into_iter().flatten() {
        let rejected = class["rejected"].as_array().into_iter().flatten().filter_map(|reason| reason[1].as_u64());
        let ends = ["completed", "failed", "cancelled"].map(|end| number(class, end)).into_iter();
        let ended = ends.sum::<Result<u64>>()? + rejected.sum::<u64>();
        let offered = number(class, "offered")?;
        if offered != ended {
            return Ok(Some(format!("of {offered} requests of {} {ended} have ended", class["name"])));
        }
    }
    Ok(None)
}

fn check(what: &str, problem: Option<String>) -> Check {
    let holds = problem.is_none();
    (what.to_owned(), problem.unwrap_or_else(|| "it does".to_owned()), holds)
}

/// Waits until there is no problem any more; the last one, if there still is.
///
/// # Errors
/// Those of the question.
pub fn awaited(most: Duration, mut problem: impl FnMut() -> Result<Option<String>>) -> Result<Option<String>> {
    let mut last = None;
    until(most, || {
        last = problem()?;
        Ok(last.is_none())
    })?;
    Ok(last)
}

fn entries(audit: &Value) -> Result<Vec<Value>> {
    audit.as_array().cloned().context("/api/audit is no list")
}

fn number(of: &Value, name: &str) -> Result<u64> {
    of[name].as_u64().with_context(|| format!("no `{name}` in {of}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_permit_that_is_lost_or_doubled_is_found() {
        let app = |stale: u64, held: u64, completed: u64| {
            json!({
                "stale_tickets": stale,
                "servers": [{ "address": "a:1", "in_flight": held }],
                "classes": [{
                    "name": "gold", "offered": 10, "completed": completed, "failed": 1, "cancelled": 2,
                    "rejected": [["queue-full", 3]],
                }],
            })
        };
        assert_eq!(unbalanced(&app(0, 0, 4)).unwrap(), None);
        assert!(unbalanced(&app(1, 0, 4)).unwrap().unwrap().contains("twice"));
        assert!(unbalanced(&app(0, 1, 4)).unwrap().unwrap().contains("held"));
        for completed in [3, 5] {
            assert!(unbalanced(&app(0, 0, completed)).unwrap().unwrap().contains("of 10 requests"));
        }
        assert!(unbalanced(&json!({})).is_err());
    }
}

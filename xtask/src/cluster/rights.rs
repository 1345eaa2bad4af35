//! Whether the Role of the manifest is as small as it can be: without any one of its verbs a control plane says what it
//! misses, and with all of them it misses nothing.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::api::awaited;
use super::home::{Cluster, Home, SOON, names};
use super::member::Member;
use super::{Check, home};

/// A verb of a rule.
struct Verb {
    rule: usize,
    verb: String,
    resource: String,
}

/// Checks it.
pub fn check(cluster: &mut Cluster) -> Result<Vec<Check>> {
    let mut all = Vec::new();
    let whole = cluster.home("rights-whole", |rules| {
        all = verbs(rules);
        Ok(())
    })?;
    ensure!(!all.is_empty(), "the Role has no rules");
    let began = Instant::now();
    let refused = live(&whole, None)?;
    let took = began.elapsed().as_secs_f64();
    let mut checks = vec![(
        format!("rights: with all {} verbs of the Role it lives and dies, and nothing is refused", all.len()),
        refused.clone().unwrap_or_else(|| format!("{took:.0} s")),
        refused.is_none(),
    )];
    for (number, verb) in all.iter().enumerate() {
        let home = cluster.home(&format!("rights-{number}"), |rules| without(rules, verb))?;
        let said = format!("cannot {} resource \"{}\"", verb.verb, verb.resource);
        let what = format!("rights: without {} of {} it says so", verb.verb, verb.resource);
        checks.push(match live(&home, Some(&said)) {
            Ok(Some(line)) => (what, short(&line, &said), true),
            Ok(None) => (what, "it says nothing".to_owned(), false),
            Err(error) => (what, format!("{error:#}"), false),
        });
    }
    Ok(checks)
}

/// A control plane from its first start to its second; what it said was refused, the sentence that is looked for or,
/// without one, any.
fn live(home: &Home, looked_for: Option<&str>) -> Result<Option<String>> {
    let mut member = Member::new(home, 0, 1)?;
    let told =
        |member: &Member| member.refusals().into_iter().find(|line| looked_for.is_none_or(|said| line.contains(said)));
    let until = |member: &mut Member, what: &str, done: &dyn Fn(&Member) -> Result<bool>| -> Result<Option<String>> {
        let outcome = awaited(what, SOON, || {
            let told = told(member);
            if told.is_some() {
                return Ok(Some(told));
            }
            if !member.is_running() {
                bail!("{what}: it ended, and said nothing of the kind: {}", member.refusals().join(" "));
            }
            Ok(done(member)?.then_some(None))
        });
        Ok(outcome?.0)
    };
    member.start()?;
    let first = until(&mut member, "it leads, has a pod, and is labelled", &|member| {
        let servers = member.ask("state")["servers"].as_array().cloned().unwrap_or_default();
        let has_pod = servers.iter().any(|server| !server["address"].is_null());
        Ok(member.leads() && home.scale()?.0 == 1 && has_pod && home.has_label(&member.pod)?)
    })?;
    if first.is_some() {
        return Ok(first);
    }
    member.stop()?;
    let before: Vec<String> = written(home)?;
    member.start()?;
    let second = until(&mut member, "it leads again, and what it wrote before is deleted", &|member| {
        let now = written(home)?;
        // What is missed may be said later than all that is done.
        Ok(looked_for.is_none() && member.leads() && !before.iter().any(|name| now.contains(name)))
    });
    if looked_for.is_some() && second.is_err() {
        // What is looked for did not come: that is what the check is about.
        return Ok(None);
    }
    Ok(second?.or_else(|| told(&member)))
}

/// The pieces of states and journals, each of which has a term's name.
fn written(home: &Home) -> Result<Vec<String>> {
    let list = home.api.get(&format!("/api/v1/namespaces/{}/configmaps", home.name))?;
    let is_piece = |name: &String| {
        ["-state-", "-journal-"].iter().any(|part| name.starts_with(&format!("{}{part}", home::ACCOUNT)))
    };
    Ok(names(&list).into_iter().filter(is_piece).collect())
}

fn verbs(rules: &Value) -> Vec<Verb> {
    let mut all = Vec::new();
    for (rule, content) in rules.as_array().into_iter().flatten().enumerate() {
        let texts = |key: &str| content[key].as_array().cloned().unwrap_or_default();
        for resource in texts("resources") {
            for verb in texts("verbs") {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                all.push(Verb { rule, verb: text(&verb), resource: text(&resource) });
            }
        }
    }
    all
}

/// Takes a verb out of a Role's rules; a rule without verbs goes.
fn without(rules: &mut Value, verb: &Verb) -> Result<()> {
    let all = rules.as_array_mut().context("the Role has no rules")?;
    let verbs = all[verb.rule]["verbs"].as_array_mut().context("a rule has no verbs")?;
    verbs.retain(|one| *one != verb.verb);
    if verbs.is_empty() {
        all.remove(verb.rule);
    }
    Ok(())
}

/// A line of a log from what matters on.
fn short(line: &str, said: &str) -> String {
    line.find(said).map_or(line, |at| &line[at..]).chars().take(90).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_verb_is_taken_out_alone() {
        let rules = json!([
            { "apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "update"] },
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["patch"] },
        ]);
        let all = verbs(&rules);
        let left: Vec<Value> = all
            .iter()
            .map(|verb| {
                let mut rules = rules.clone();
                without(&mut rules, verb).unwrap();
                rules
            })
            .collect();
        assert_eq!(left[0][0]["verbs"], json!(["update"]));
        assert_eq!(left[1][0]["verbs"], json!(["get"]));
        assert_eq!((left[2].as_array().unwrap().len(), all.len()), (1, 3));
    }
}

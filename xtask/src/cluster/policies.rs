//! Whether an OverloadPolicy gets sentries, with the rights of the operator's manifest and no more, and what it says.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::api::awaited;
use super::home::{Cluster, Home, PORT, SOON, await_right, await_rights};
use super::member::{Load, Running, refusals, tidegate};
use super::scaling::{SCALED, complete};
use crate::checks::Check;

/// The account and the Role of the manifest.
const ACCOUNT: &str = "tidegate-operator";
/// The account of sentries.
const SENTRIES: &str = "tidegate-sentry";
/// Not the name of what the manifests make.
const POLICY: &str = "front";
/// A changed policy is in force at the sentries within this time; nodes of this cluster look each second.
const CHANGED: Duration = Duration::from_secs(10);

/// An operator, a service of two pods, and a policy.
struct Site {
    home: Home,
    operator: Option<Running>,
    kubeconfig: PathBuf,
}

/// Makes another policy of one.
type Change<'a> = &'a dyn Fn(&mut Value);

/// Checks it.
pub fn check(cluster: &mut Cluster) -> Result<Vec<Check>> {
    let mut site = Site::new(cluster, "policies")?;
    let mut checks = site.schema()?;
    site.start()?;
    checks.push(site.come()?);
    checks.extend(site.tell()?);
    checks.extend(site.change()?);
    checks.push(site.restart()?);
    checks.push(site.leave_alone()?);
    let refused = site.refusals();
    let found = refused.first().cloned().unwrap_or_else(|| "nothing".to_owned());
    checks.push(("policies: nothing is refused for want of a right".to_owned(), found, refused.is_empty()));
    checks.push(site.end()?);
    drop(site);
    checks.extend(rights(cluster)?);
    Ok(checks)
}

impl Site {
    fn new(cluster: &Cluster, name: &str) -> Result<Self> {
        let home = cluster.home(name, |_| Ok(()))?;
        awaited("the API server knows the kind", SOON, || {
            Ok(home.api.get("/apis/tidegate.io/v1alpha1").is_ok().then_some(()))
        })?;
        for account in [ACCOUNT, SENTRIES] {
            await_rights(&home.api, name, account, &rules(&home, account)?)?;
        }
        let kubeconfig = cluster.kubeconfig(name, ACCOUNT)?;
        Ok(Self { home, operator: None, kubeconfig })
    }

    fn start(&mut self) -> Result<()> {
        let mut program = Command::new(tidegate());
        program.args(["operator", "--image", "tidegate:check", "--every", "1s"]).env("KUBECONFIG", &self.kubeconfig);
        self.operator = Some(Running::start(program, &self.home.dir.join("operator.log"))?);
        Ok(())
    }

    fn refusals(&self) -> Vec<String> {
        self.operator.as_ref().map(|operator| refusals(&operator.log())).unwrap_or_default()
    }

    /// What the API server itself takes and does not take.
    fn schema(&self) -> Result<Vec<Check>> {
        let with = |change: Change<'_>| -> Result<u16> {
            let mut spec = spec();
            change(&mut spec);
            self.put(&spec, "&dryRun=All").map(|answer| answer.status)
        };
        let taken = with(&|_| {})?;
        let wrong: [(&str, Change<'_>); 8] = [
            ("a misspelt field", &|spec| spec["tarGet"] = json!("1s")),
            ("a target that is no time", &|spec| spec["target"] = json!("soon")),
            ("another kind of target", &|spec| spec["targetRef"]["kind"] = json!("Deployment")),
            ("no service", &|spec| spec["targetRef"] = Value::Null),
            ("a rate that is none", &|spec| spec["classes"][0]["minRate"] = json!("many")),
            ("two classes of a name", &|spec| spec["classes"][1]["name"] = json!("checkout")),
            ("two classes without rules", &|spec| spec["classes"][0]["match"] = json!([])),
            ("too many sentries", &|spec| spec["sentries"]["replicas"] = json!(1000)),
        ];
        let mut passed = Vec::new();
        for (name, change) in wrong {
            if with(change)? < 400 {
                passed.push(name);
            }
        }
        let found = if passed.is_empty() { "none".to_owned() } else { passed.join(", ") };
        Ok(vec![
            ("policies: the API server takes one that is right".to_owned(), format!("{taken}"), taken < 300),
            (format!("policies: of {} that are wrong it takes none", wrong.len()), found, passed.is_empty()),
        ])
    }

    /// The policy gets sentries.
    fn come(&self) -> Result<Check> {
        self.home.api.patch(&self.deployment("shop"), &json!({ "spec": { "replicas": 2 } }))?;
        self.put(&spec(), "")?.object()?;
        let (_, took) = awaited("two sentries stand before the service", SCALED, || {
            let is = |kind: &str| self.condition(kind).is_ok_and(|one| one["status"] == "True");
            Ok((is("Accepted") && is("Programmed") && self.status()?["sentries"] == 2).then_some(()))
        })?;
        Ok((
            "policies: two sentries are ready, and the policy says so".to_owned(),
            format!("after {:.1} s", took.as_secs_f64()),
            true,
        ))
    }

    /// It says who comes, and who is refused: half again as much as the two pods can do.
    fn tell(&self) -> Result<Vec<Check>> {
        let sentries = self.sentries()?;
        ensure!(sentries.len() == 2, "two sentries, and not {sentries:?}");
        let loads: Vec<_> =
            sentries.iter().map(|to| Load::start(*to, 30, 20, &self.home.dir)).collect::<Result<_>>()?;
        let told = awaited("the policy says what comes and what is refused", SOON, || {
            let load = self.status()?["load"].clone();
            let of = |key: &str| load[key].as_i64().unwrap_or(0);
            Ok((of("offeredPerSecond") > 40 && of("refusedPerSecond") > 5).then_some(load))
        });
        let mut checks = Vec::new();
        for load in loads {
            checks.push(complete("policies: no request is lost", load)?);
        }
        let (load, _) = told.with_context(|| format!("{:?}", self.status()))?;
        let what = "policies: of 60 requests/s at pods for 40 it says what comes and what is refused".to_owned();
        checks.push((what, load.to_string(), true));
        Ok(checks)
    }

    /// A change reaches the sentries, and a mistake changes nothing.
    fn change(&self) -> Result<Vec<Check>> {
        let sentries = self.sentries()?;
        let loads: Vec<_> = sentries.iter().map(|to| Load::start(*to, 5, 15, &self.home.dir)).collect::<Result<_>>()?;
        let mut wrong = spec();
        wrong["settings"] = json!({ "dispach": "p2c" });
        self.put(&wrong, "")?.object()?;
        let (said, _) = awaited("a mistake is said", SOON, || {
            let accepted = self.condition("Accepted")?;
            Ok((accepted["reason"] == "Invalid").then(|| accepted["message"].to_string()))
        })?;
        let text = self.home.api.get(&self.path("/api/v1", "configmaps/front-sentry"))?["data"].to_string();
        let mut checks = vec![(
            "policies: a mistake is said, and changes nothing".to_owned(),
            said.clone(),
            said.contains("dispach") && !text.contains("dispach"),
        )];
        let mut shadow = spec();
        shadow["shadow"] = json!(true);
        self.put(&shadow, "")?.object()?;
        let (_, took) = awaited("both sentries are in shadow mode", SOON, || {
            let is = |to: &SocketAddr| {
                let state = self.state(*to).unwrap_or_default();
                state["applications"][0]["shadow"] == true
            };
            Ok(sentries.iter().all(is).then_some(()))
        })?;
        checks.push((
            "policies: a change is in force at both sentries".to_owned(),
            format!("after {:.1} s", took.as_secs_f64()),
            took < CHANGED,
        ));
        for load in loads {
            checks.push(complete("policies: no request is lost meanwhile", load)?);
        }
        Ok(checks)
    }

    /// An operator that is killed and comes back changes nothing.
    fn restart(&mut self) -> Result<Check> {
        let generation = |site: &Self| -> Result<Value> {
            Ok(site.home.api.get(&site.deployment("shop-sentry"))?["metadata"]["generation"].clone())
        };
        let before = (generation(self)?, self.sentries()?);
        self.operator = None;
        self.put(&spec(), "")?.object()?;
        self.start()?;
        let (_, took) = awaited("it sees what was changed meanwhile", SOON, || {
            let object = self.home.api.get(&self.policy())?;
            let seen = &object["status"]["observedGeneration"];
            Ok((*seen == object["metadata"]["generation"]).then_some(()))
        })?;
        let after = (generation(self)?, self.sentries()?);
        Ok((
            "policies: another operator takes over, and no sentry is touched".to_owned(),
            format!("after {:.1} s; generations {} and {}", took.as_secs_f64(), before.0, after.0),
            before == after,
        ))
    }

    /// What somebody else has made is left alone.
    fn leave_alone(&self) -> Result<Check> {
        let path = self.deployment("shop-sentry");
        let before = self.home.api.get(&path)?["spec"].take();
        self.put_as("shop", &spec_of("shop-sentry"), "")?.object()?;
        let policy = self.path("/apis/tidegate.io/v1alpha1", "overloadpolicies/shop");
        let (said, _) = awaited("it says whose it is", SOON, || {
            let status = self.home.api.get(&policy)?["status"].take();
            let found = status["conditions"].as_array().into_iter().flatten().find(|one| one["reason"] == "NameTaken");
            Ok(found.map(|one| one["message"].to_string()))
        })?;
        let is_same = self.home.api.get(&path)?["spec"] == before;
        self.home.api.delete(&policy, &json!({}))?;
        Ok(("policies: what somebody else has made is left alone".to_owned(), said, is_same))
    }

    /// What was made for a policy goes with it.
    fn end(&self) -> Result<Check> {
        self.home.api.delete(&self.policy(), &json!({}))?;
        let left = || -> Result<Vec<String>> {
            let all = [
                ("/apis/apps/v1", "deployments"),
                ("/api/v1", "configmaps"),
                ("/api/v1", "secrets"),
                ("/api/v1", "services"),
                ("/api/v1", "pods"),
            ];
            let mut left = Vec::new();
            for (root, kind) in all {
                let selector = "?labelSelector=app.kubernetes.io%2Finstance%3Dfront";
                let list = self.home.api.get(&self.path(root, &format!("{kind}{selector}")))?;
                left.extend(super::home::names(&list).into_iter().map(|name| format!("{kind}/{name}")));
            }
            Ok(left)
        };
        let gone = awaited("all of it is gone", SCALED, || Ok(left()?.is_empty().then_some(())));
        let what = "policies: what was made for it goes with it".to_owned();
        Ok(match gone {
            Ok(((), took)) => (what, format!("after {:.1} s", took.as_secs_f64()), true),
            Err(_) => (what, format!("left: {}", left()?.join(", ")), false),
        })
    }

    fn put(&self, spec: &Value, how: &str) -> Result<super::api::Answer> {
        self.put_as(POLICY, spec, how)
    }

    fn put_as(&self, name: &str, spec: &Value, how: &str) -> Result<super::api::Answer> {
        let object = json!({
            "apiVersion": "tidegate.io/v1alpha1", "kind": "OverloadPolicy", "metadata": { "name": name }, "spec": spec,
        });
        let path = self.path("/apis/tidegate.io/v1alpha1", &format!("overloadpolicies/{name}"));
        self.home.api.apply(&format!("{path}?fieldManager=check&fieldValidation=Strict{how}"), &object.to_string())
    }

    /// Where the sentries serve that are ready.
    fn sentries(&self) -> Result<Vec<SocketAddr>> {
        let selector = "pods?labelSelector=app.kubernetes.io%2Fname%3Dtidegate-sentry";
        let list = self.home.api.get(&self.path("/api/v1", selector))?;
        let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let address = |pod: &Value| Some(SocketAddr::new(pod["status"]["podIP"].as_str()?.parse().ok()?, PORT));
        Ok(list["items"].as_array().into_iter().flatten().filter(stays).filter_map(address).collect())
    }

    /// What a sentry says of itself.
    fn state(&self, sentry: SocketAddr) -> Result<Value> {
        let secret = self.home.api.get(&self.path("/api/v1", "secrets/front-sentry"))?;
        let token = super::volumes::decoded(secret["data"]["admin.token"].as_str().context("no token")?)?;
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--max-time", "5", "-H"]);
        curl.arg(format!("Authorization: Bearer {}", String::from_utf8_lossy(&token)));
        curl.arg(format!("http://{}:9900/api/state", sentry.ip()));
        Ok(serde_json::from_slice(&curl.output()?.stdout)?)
    }

    fn status(&self) -> Result<Value> {
        Ok(self.home.api.get(&self.policy())?["status"].take())
    }

    fn condition(&self, kind: &str) -> Result<Value> {
        let status = self.status()?;
        let found = status["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == kind);
        Ok(found.cloned().unwrap_or_default())
    }

    fn policy(&self) -> String {
        self.path("/apis/tidegate.io/v1alpha1", &format!("overloadpolicies/{POLICY}"))
    }

    fn deployment(&self, name: &str) -> String {
        self.path("/apis/apps/v1", &format!("deployments/{name}"))
    }

    fn path(&self, root: &str, rest: &str) -> String {
        format!("{root}/namespaces/{}/{rest}", self.home.name)
    }
}

fn spec() -> Value {
    spec_of("shop-pods")
}

fn spec_of(service: &str) -> Value {
    json!({
        "targetRef": { "kind": "Service", "name": service, "sectionName": "http" },
        "target": "500ms",
        "classes": [{ "name": "checkout", "minRate": "5/s", "match": [{ "pathPrefix": "/checkout" }] }, { "name": "rest" }],
        "sentries": { "replicas": 2 },
    })
}

/// Without any one of the rights of its Role an operator says which.
fn rights(cluster: &Cluster) -> Result<Vec<Check>> {
    let mut verbs = Vec::new();
    let whole = Site::new(cluster, "policies-rights")?;
    for (rule, content) in rules(&whole.home, ACCOUNT)?.as_array().into_iter().flatten().enumerate() {
        let all = content["verbs"].as_array().cloned().unwrap_or_default();
        verbs.extend(all.into_iter().map(|verb| (rule, verb)));
    }
    let mut checks = Vec::new();
    for (number, (rule, verb)) in verbs.iter().enumerate() {
        let mut site = Site::new(cluster, &format!("policies-{number}"))?;
        let mut rules = rules(&site.home, ACCOUNT)?;
        let (verb, resource) = (verb.as_str().unwrap_or_default(), rules[*rule]["resources"][0].clone());
        let resource = resource.as_str().unwrap_or_default();
        rules[*rule]["verbs"].as_array_mut().context("a rule has no verbs")?.retain(|one| one != verb);
        let (name, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = json!({
            "namespace": site.home.name, "verb": verb, "group": rules[*rule]["apiGroups"][0], "resource": name,
            "subresource": subresource,
        });
        rules.as_array_mut().context("no rules")?.retain(|rule| rule["verbs"] != json!([]));
        site.home.api.patch(&role(&site.home, ACCOUNT), &json!({ "rules": rules }))?;
        await_right(&site.home.api, &site.home.name, ACCOUNT, &attributes, false)?;
        site.put(&spec(), "")?.object()?;
        site.start()?;
        let said = format!("cannot {verb} resource \"{resource}\"");
        let told = awaited("it says so", SOON, || Ok(site.refusals().into_iter().find(|line| line.contains(&said))));
        let what = format!("policies: without {verb} of {resource} it says so");
        checks.push(match told {
            Ok((_, took)) => (what, format!("{:.1} s after the start", took.as_secs_f64()), true),
            Err(error) => (what, format!("{error:#}: {}", site.refusals().join(" ")), false),
        });
    }
    Ok(checks)
}

fn role(home: &Home, account: &str) -> String {
    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/{account}", home.name)
}

fn rules(home: &Home, account: &str) -> Result<Value> {
    Ok(home.api.get(&role(home, account))?["rules"].take())
}

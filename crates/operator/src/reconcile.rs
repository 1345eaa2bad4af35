//! One policy: from what is wanted to what there is.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServicePort};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidegate_kubernetes::{Access, Endpoints, Kind as Why, Object, Trouble};
use tracing::{info, warn};

use crate::figures::{Figures, Meter, ask};
use crate::parts::{Kind, MANAGED_BY, Part, parts, secret, sentry_name};
use crate::policy::{GROUP, KIND, OverloadPolicy, Status, VERSION};
use crate::status::{News, Outcome, shortened, status};
use crate::translate::configuration;

/// Who writes.
const MANAGER: &str = MANAGED_BY.1;
/// What somebody else changed is put right after this time.
const RENEW: Duration = Duration::from_secs(60);
/// Why a policy is not in force: it makes no sense, its service is not there, or another one has it.
const INVALID: &str = "Invalid";
const NO_TARGET: &str = "TargetNotFound";
const CONFLICTED: &str = "Conflicted";
/// Or somebody else has made something under a name that it needs.
const NAME_TAKEN: &str = "NameTaken";
/// The longest note that an event takes.
const NOTE: usize = 1024;
/// The bytes of a sentry's key and token.
const RANDOM: usize = 4;

/// Where policies are.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) access: Arc<Access>,
    /// What sentries run.
    pub(crate) image: String,
}

/// What is remembered of a policy between two rounds. Nothing of it is needed.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    meter: Meter,
    /// What was said last; what is read may be older.
    status: Option<Status>,
    /// What was written last, and when.
    written: Option<(Vec<Part>, Instant)>,
}

impl Site {
    /// One round: writes what is missing or other than it should be, asks sentries, and says what came of it. `other`
    /// is an older policy of the same service. Whether nothing else is to be expected soon.
    pub(crate) async fn round(&self, policy: &OverloadPolicy, other: Option<&str>, memory: &mut Memory) -> bool {
        let outcome = match other {
            Some(other) => {
                Outcome::Refused(CONFLICTED, format!("policy \"{other}\", which is older, has this service"))
            }
            None => self.apply(policy, memory).await.unwrap_or_else(|trouble| Outcome::Stuck(trouble.text)),
        };
        // Sentries go on when a policy is changed to what makes no sense.
        let figures = self.figures(policy, memory).await.unwrap_or_else(|trouble| {
            warn!(policy = policy.name(), "{}", trouble.text);
            Figures::default()
        });
        let before = memory.status.take().or_else(|| policy.status.clone()).unwrap_or_default();
        let (status, news) = status(policy.metadata.generation, &before, &outcome, &figures, Timestamp::now());
        if policy.status.as_ref() != Some(&status)
            && let Err(trouble) = self.write_status(policy, &json!(status)).await
        {
            warn!(policy = policy.name(), "{}", trouble.text);
            return false;
        }
        memory.status = Some(status);
        for one in &news {
            self.tell(policy, one).await;
        }
        match outcome {
            Outcome::Refused(reason, _) => ![NO_TARGET, NAME_TAKEN].contains(&reason),
            Outcome::Stuck(_) => false,
            Outcome::Applied { ready, wanted } => ready >= wanted,
        }
    }

    async fn apply(&self, policy: &OverloadPolicy, memory: &mut Memory) -> Result<Outcome, Trouble> {
        let refused = |reason, why| Ok(Outcome::Refused(reason, why));
        let target = &policy.spec.target_ref;
        let Some(service) = self.get::<Service>(&target.name).await? else {
            return refused(NO_TARGET, format!("there is no service \"{}\" in this namespace", target.name));
        };
        let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
        let Some(port) = port(&ports, target.section_name.as_deref()) else {
            let which =
                target.section_name.as_ref().map_or(String::from("TCP port"), |name| format!("TCP port \"{name}\""));
            return refused(NO_TARGET, format!("service \"{}\" has no {which}", target.name));
        };
        let configuration = match configuration(policy) {
            Ok(configuration) => configuration,
            Err(why) => return refused(INVALID, why),
        };
        let parts = parts(policy, &configuration, &self.image, port);
        let is_written = |(written, at): &(Vec<Part>, Instant)| *written == parts && at.elapsed() < RENEW;
        if !memory.written.as_ref().is_some_and(is_written) {
            if let Some(taken) = self.taken(policy, &parts).await? {
                let what = "exists, and this policy has not made it; rename one of them";
                return refused(NAME_TAKEN, format!("{taken} {what}"));
            }
            self.make_secret(policy).await?;
            for part in &parts {
                self.write(part).await?;
            }
            memory.written = Some((parts, Instant::now()));
        }
        let deployment = self.get::<Deployment>(&sentry_name(policy.name())).await?.unwrap_or_default();
        let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let ready = deployment.status.and_then(|status| status.ready_replicas).unwrap_or(0);
        Ok(Outcome::Applied { ready, wanted })
    }

    /// What somebody else has made under a name that the policy needs.
    async fn taken(&self, policy: &OverloadPolicy, parts: &[Part]) -> Result<Option<String>, Trouble> {
        if let Some(taken) = self.foreign::<Secret>(policy, &sentry_name(policy.name())).await? {
            return Ok(Some(taken));
        }
        for part in parts {
            let taken = match part.kind {
                Kind::ConfigMap => self.foreign::<ConfigMap>(policy, &part.name).await?,
                Kind::Deployment => self.foreign::<Deployment>(policy, &part.name).await?,
                Kind::Service => self.foreign::<Service>(policy, &part.name).await?,
            };
            if taken.is_some() {
                return Ok(taken);
            }
        }
        Ok(None)
    }

    async fn foreign<K: Object>(&self, policy: &OverloadPolicy, name: &str) -> Result<Option<String>, Trouble> {
        let Some(object) = self.get::<K>(name).await? else { return Ok(None) };
        let owners = object.meta().owner_references.iter().flatten();
        let is_ours = owners.into_iter().any(|owner| Some(&owner.uid) == policy.metadata.uid.as_ref());
        Ok((!is_ours).then(|| format!("{} \"{name}\"", K::kind(&()))))
    }

    /// What the sentries say that are ready.
    async fn figures(&self, policy: &OverloadPolicy, memory: &mut Memory) -> Result<Figures, Trouble> {
        let name = sentry_name(policy.name());
        let Some(secret) = self.get::<Secret>(&name).await? else { return Ok(Figures::default()) };
        let token = secret.data.unwrap_or_default().remove("admin.token").unwrap_or_default().0;
        let token = String::from_utf8_lossy(&token).into_owned();
        let pods = Endpoints::new(self.access.clone(), &name, None).next().await?;
        let asked = pods.iter().filter(|pod| pod.is_ready).map(|pod| {
            let (ip, token) = (pod.address.ip(), token.trim());
            async move { (ip, ask(ip, token).await) }
        });
        let mut answers: Vec<(IpAddr, Value)> = Vec::new();
        for (ip, answer) in join_all(asked).await {
            match answer {
                Ok(state) => answers.push((ip, state)),
                Err(why) => warn!(policy = policy.name(), sentry = %ip, "a sentry cannot be asked: {why}"),
            }
        }
        Ok(memory.meter.take(&answers))
    }

    /// Makes the secret of a policy's sentries, if there is none.
    async fn make_secret(&self, policy: &OverloadPolicy) -> Result<(), Trouble> {
        let name = sentry_name(policy.name());
        if self.get::<Secret>(&name).await?.is_some() {
            return Ok(());
        }
        let random = || (0..RANDOM).map(|_| format!("{:016x}", tidegate_wire::random_u64())).collect::<String>();
        let object: Secret = of(secret(policy, &random(), &random()))?;
        let (api, params) = (self.access.api::<Secret>(), PostParams::default());
        match self.access.call("making the secret", &name, api.create(&params, &object)).await {
            // Another operator was faster.
            Err(trouble) if trouble.kind == Why::Conflict => Ok(()),
            made => made.map(drop),
        }
    }

    async fn write(&self, part: &Part) -> Result<(), Trouble> {
        match part.kind {
            Kind::ConfigMap => self.write_as::<ConfigMap>(part).await,
            Kind::Deployment => self.write_as::<Deployment>(part).await,
            Kind::Service => self.write_as::<Service>(part).await,
        }
    }

    async fn write_as<K: Object>(&self, part: &Part) -> Result<(), Trouble> {
        let (api, params) = (self.access.api::<K>(), PatchParams::apply(MANAGER).force());
        let whom = format!("{} {}", K::kind(&()), part.name);
        let patch = Patch::Apply(&part.object);
        self.access.call("writing", &whom, api.patch(&part.name, &params, &patch)).await.map(drop)
    }

    async fn write_status(&self, policy: &OverloadPolicy, status: &Value) -> Result<(), Trouble> {
        let (api, params) = (self.access.api::<OverloadPolicy>(), PatchParams::apply(MANAGER).force());
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND, "metadata": { "name": policy.name() }, "status": status,
        });
        let patch = Patch::Apply(&object);
        let written = api.patch_status(policy.name(), &params, &patch);
        self.access.call("writing the status of policy", policy.name(), written).await.map(drop)
    }

    /// Says that something happened to a policy: as an event, and in the log.
    async fn tell(&self, policy: &OverloadPolicy, news: &News) {
        match news.is_warning {
            true => warn!(policy = policy.name(), reason = news.reason, "{}", news.note),
            false => info!(policy = policy.name(), reason = news.reason, "{}", news.note),
        }
        let event = of::<Event>(json!({
            "metadata": { "generateName": format!("{}-", policy.name()) },
            "eventTime": Timestamp::now().to_string(),
            "reportingController": format!("{GROUP}/operator"),
            "reportingInstance": MANAGER,
            "action": "Reconcile",
            "reason": news.reason,
            "note": shortened(news.note.clone(), NOTE),
            "type": if news.is_warning { "Warning" } else { "Normal" },
            "regarding": {
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND, "name": policy.name(),
                "namespace": policy.metadata.namespace, "uid": policy.metadata.uid,
            },
        }));
        let (api, params) = (self.access.api::<Event>(), PostParams::default());
        let told = match event {
            Ok(event) => self.access.call("telling of", policy.name(), api.create(&params, &event)).await.map(drop),
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = told {
            warn!(policy = policy.name(), "{}", trouble.text);
        }
    }

    async fn get<K: Object>(&self, name: &str) -> Result<Option<K>, Trouble> {
        let api = self.access.api::<K>();
        let whom = format!("{} {name}", K::kind(&()));
        let found = self.access.call("reading", &whom, api.get_opt(name)).await;
        if let Err(trouble) = &found {
            self.access.mend(trouble).await;
        }
        found
    }
}

/// The port of a service with this name, or its first one, by which clients ask it.
fn port(ports: &[ServicePort], name: Option<&str>) -> Option<i32> {
    let is_tcp = |port: &&ServicePort| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
    let is_it = |port: &&ServicePort| name.is_none_or(|name| port.name.as_deref() == Some(name));
    ports.iter().filter(is_tcp).find(is_it).map(|port| port.port)
}

fn of<K: serde::de::DeserializeOwned>(object: Value) -> Result<K, Trouble> {
    serde_json::from_value(object).map_err(|error| Trouble::passing(format!("an object cannot be made: {error}")))
}

//! Sentries that are pods of a deployment, started and stopped by a control plane.

use crate::support::cluster::Cluster;
use crate::support::site::{Sentry, Site};
use crate::support::until;

#[test]
fn a_sentry_is_a_pod_as_long_as_nobody_else_has_started_one() {
    let cluster = Cluster::start("sentries", 0);
    let more = format!(
        "[sentries.provider]\nkind = \"kubernetes\"\nmost = 4\nleave_after = \"1s\"\nkubeconfig = \"{}\"\n\
         namespace = \"{}\"\n[sentries.provider.deployments.shop]\ndeployment = \"shop\"\nservice = \"shop\"\n\
         port = \"http\"\n",
        cluster.kubeconfig.display(),
        cluster.namespace,
    );
    let site = Site::start(&more);
    until("a pod is asked for", || cluster.replicas() == 1 && cluster.pods().len() == 1);
    // Until its sentry speaks it is on its way, and no second one is asked for.
    let pod = cluster.pods()[0].clone();
    assert_eq!(site.records("sentry-up"), 0);
    let _own = Sentry::connect(&site, &pod, "10.0.0.1");
    until("it is known by its pod's name", || site.records("sentry-up") == 1);
    assert_eq!((cluster.replicas(), site.records("sentry-leaves")), (1, 0));

    let _others = Sentry::connect(&site, "somebody's", "10.0.0.2");
    until("somebody else's is enough", || site.records("sentry-leaves") == 1);
    until("and the pod goes", || cluster.replicas() == 0 && cluster.pods().is_empty());
}

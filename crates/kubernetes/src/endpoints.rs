//! Which pods a service has now.

use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::access::Access;
use crate::objects::Objects;
use crate::slices::{Pod, pods};
use crate::trouble::Trouble;

const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The pods of one service, followed by its endpoint slices.
#[derive(Debug)]
pub struct Endpoints {
    slices: Objects<EndpointSlice>,
    port: Option<String>,
}

impl Endpoints {
    /// Those of `service` at its port of this name or number; else at its first one.
    pub fn new(access: Arc<Access>, service: &str, port: Option<&str>) -> Endpoints {
        let what = format!("the endpoints of {service}");
        let labels = Some(format!("{SERVICE_LABEL}={service}"));
        Endpoints { slices: Objects::new(access, &what, labels), port: port.map(str::to_owned) }
    }

    /// Waits until there is something to hear: which pods it has now. That is said once a minute, too, when nothing
    /// changed.
    ///
    /// # Errors
    /// When nothing is known any more; what was known last holds. Said once, until all is well again.
    pub async fn next(&mut self) -> Result<Vec<Pod>, Trouble> {
        self.slices.next().await?;
        Ok(pods(self.slices.all(), self.port.as_deref()))
    }
}

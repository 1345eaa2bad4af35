//! A Lease and ConfigMaps of a cluster, for several control planes of which one leads.
//!
//! | file | question |
//! |---|---|
//! | `lease.rs` | who leads: by a Lease of the API server |
//! | `label.rs` | the label on the leader's pod |
//! | `store.rs`, `store/` | what must survive: in ConfigMaps |

mod label;
mod lease;
mod store;

use std::time::Duration;

use super::{Backend, Contact, Leader, Store, StoreError, Turn};
use crate::config::ClusterConfig;
use crate::kubernetes::{ApiError, ApiServer};
use lease::{Candidate, Vote};
use store::ClusterStore;

/// Of a lease's time, after so much of it it is renewed.
const RENEW: u32 = 5;
/// The label of whatever this program makes in a cluster.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value.
const MANAGER: &str = "tidegate-control";

/// Between two looks at who leads. With the shortest lease that is usual another one leads well within 5 s, and an API
/// server is asked twice a second by each that waits.
const LOOK: Duration = Duration::from_millis(500);

/// A cluster's API server, and one candidate there.
#[derive(Debug)]
pub struct ClusterBackend {
    server: ApiServer,
    prefix: String,
    candidate: Candidate,
}

impl ClusterBackend {
    /// Reads where the API server is, and who this is there. Nothing is asked yet.
    ///
    /// # Errors
    /// When that cannot be read, or the system gives no thread.
    pub fn find(config: &ClusterConfig) -> Result<ClusterBackend, String> {
        let server = ApiServer::find(config.kubeconfig.clone(), config.namespace.clone())?;
        let candidate = Candidate::new(server.clone(), config);
        Ok(ClusterBackend { server, prefix: config.prefix.clone(), candidate })
    }
}

impl Backend for ClusterBackend {
    fn stand(&self, contact: &Contact, wall: u64) -> Result<Turn, StoreError> {
        // Whatever it is, a missing permission for example, it may pass.
        match self.candidate.stand(contact, wall).map_err(|error| StoreError::Away(error.to_string()))? {
            Vote::Mine(seat) => Ok(Turn::Mine(Box::new(ClusterStore::lead(seat, &self.prefix, wall)))),
            Vote::Others(leader) => Ok(Turn::Others(leader)),
        }
    }

    fn look_every(&self) -> Duration {
        LOOK
    }

    fn look(&self) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(ClusterStore::look(&self.server, &self.prefix)?))
    }
}

impl From<ApiError> for StoreError {
    fn from(error: ApiError) -> StoreError {
        match error {
            ApiError::Away(_) => StoreError::Away(error.to_string()),
            other => StoreError::Failed { place: String::from("Kubernetes"), problem: other.to_string() },
        }
    }
}

/// What a leader says of itself.
fn said(value: &[u8]) -> Leader {
    serde_json::from_slice(value).unwrap_or_default()
}

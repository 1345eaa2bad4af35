//! A way to an API server.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Error};
use tokio::time::timeout;

use crate::trouble::{Kind, Trouble, causes};

/// One call, with what the client library tries again by itself.
const CALL: Duration = Duration::from_secs(10);

/// An API server, who this is there, and the namespace that is asked about.
///
/// *Awkward cases.* Credentials that are not accepted (401) are read again: files of tokens are replaced while in use.
pub struct Access {
    kubeconfig: Option<PathBuf>,
    namespace: String,
    client: Mutex<Client>,
}

impl Access {
    /// Reads where the API server is, and who this is there; without a file as `kubectl` does it, or as a pod does.
    /// Without a namespace it is the one where this one is at home. Nothing is asked yet.
    ///
    /// # Errors
    /// What cannot be read, and why.
    pub async fn find(kubeconfig: Option<PathBuf>, namespace: Option<String>) -> Result<Access, String> {
        let found = load(kubeconfig.clone()).await?;
        let namespace = namespace.unwrap_or_else(|| found.default_namespace.clone());
        let client = Client::try_from(found).map_err(|error| causes(&error))?;
        Ok(Access { kubeconfig, namespace, client: Mutex::new(client) })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its objects of a kind.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.lock().unwrap_or_else(PoisonError::into_inner).clone(), &self.namespace)
    }

    /// Waits for a call, 10 s at most: `what` is done to `whom`.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub async fn call<T>(
        &self,
        what: &str,
        whom: &str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Trouble> {
        match timeout(CALL, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Trouble::from_error(what, whom, &error)),
            Err(_) => Err(Trouble::passing(format!("{what} {whom}: the API server does not answer within {CALL:?}"))),
        }
    }

    /// Does what can be done before the next try.
    pub async fn mend(&self, trouble: &Trouble) {
        if trouble.kind != Kind::Stranger {
            return;
        }
        let Ok(found) = load(self.kubeconfig.clone()).await else { return };
        if let Ok(client) = Client::try_from(found) {
            *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client;
        }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// How the API server is reached: by this file, or as `kubectl` does it, or as a pod does.
///
/// # Errors
/// What cannot be read, and why.
pub async fn load(kubeconfig: Option<PathBuf>) -> Result<kube::Config, String> {
    match kubeconfig {
        Some(path) => {
            let read =
                Kubeconfig::read_from(&path).map_err(|error| format!("{}: {}", path.display(), causes(&error)))?;
            let found = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
            found.map_err(|error| format!("{}: {}", path.display(), causes(&error)))
        }
        None => kube::Config::infer().await.map_err(|error| causes(&error)),
    }
}

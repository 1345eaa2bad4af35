//! What a sentry's container finds mounted: its configuration, its secrets, and the rights of its account.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::api::Api;
use super::machinery::Kubeconfigs;

/// Where containers find secrets.
const SECRETS: &str = "/etc/tidegate-secrets";
const CONFIG: &str = "tidegate.toml";
/// Where a sentry listens in its pod, whose address is its own there: clients, the admin API, other sentries.
const PORTS: [u16; 3] = [8080, 9900, 9903];

/// A folder with all of it.
#[derive(Debug)]
pub struct Volumes {
    dir: PathBuf,
    kubeconfig: PathBuf,
    /// The object of the configuration.
    path: String,
    ip: IpAddr,
}

impl Volumes {
    /// Fetches what the pod's containers mount.
    ///
    /// # Errors
    /// When something of it is not there.
    pub fn mount(api: &Api, kubeconfigs: &Kubeconfigs, pod: &Value, namespace: &str, ip: IpAddr) -> Result<Self> {
        let (spec, uid) = (&pod["spec"], pod["metadata"]["uid"].as_str().context("a pod without uid")?);
        let volume = |name: &str| spec["volumes"].as_array()?.iter().find(|volume| volume["name"] == name);
        let config = volume("config").and_then(|volume| volume["configMap"]["name"].as_str());
        let secret = volume("secrets").and_then(|volume| volume["secret"]["secretName"].as_str());
        let (config, secret) = (config.context("no configuration")?, secret.context("no secrets")?);
        let account = spec["serviceAccountName"].as_str().context("no account")?;
        let dir = kubeconfigs.folder().join(format!("pod-{uid}"));
        fs::create_dir_all(&dir)?;
        let token = api.token_of(namespace, account)?;
        let kubeconfig = kubeconfigs.write(&format!("pod-{uid}"), &token, namespace)?;
        let data = api.get(&format!("/api/v1/namespaces/{namespace}/secrets/{secret}"))?["data"].take();
        for (key, value) in data.as_object().into_iter().flatten() {
            let file = dir.join(key);
            fs::write(&file, decoded(value.as_str().unwrap_or_default())?)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        }
        let volumes = Self { dir, kubeconfig, path: format!("/api/v1/namespaces/{namespace}/configmaps/{config}"), ip };
        volumes.renew(api)?;
        Ok(volumes)
    }

    /// Writes the configuration as it is now, if it is another one.
    ///
    /// # Errors
    /// When it is not there.
    pub fn renew(&self, api: &Api) -> Result<()> {
        let object = api.get(&self.path)?;
        let text = object["data"][CONFIG].as_str().context("no configuration")?;
        let mut text = text.replace(SECRETS, &self.dir.display().to_string());
        for port in PORTS {
            text = text.replace(&format!("\":{port}\""), &format!("\"{}:{port}\"", self.ip));
        }
        if fs::read_to_string(self.file()).is_ok_and(|before| before == text) {
            return Ok(());
        }
        // All of it at once.
        let new = self.dir.join("new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, self.file())?)
    }

    /// The configuration.
    pub fn file(&self) -> PathBuf {
        self.dir.join(CONFIG)
    }

    /// Leads to the API server with the rights of the pod's account.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where it is to be written down what the pod says.
    ///
    /// # Errors
    /// When there can be no file.
    pub fn log(&self) -> Result<File> {
        Ok(File::options().create(true).append(true).open(self.dir.join("pod.log"))?)
    }
}

/// What base64 stands for.
///
/// # Errors
/// When it is none.
pub fn decoded(text: &str) -> Result<Vec<u8>> {
    let mut openssl = Command::new("openssl");
    openssl.args(["base64", "-d", "-A"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut openssl = openssl.spawn().context("openssl cannot be started; run `cargo xtask programs`")?;
    openssl.stdin.take().context("openssl reads nothing")?.write_all(text.as_bytes())?;
    let output = openssl.wait_with_output()?;
    ensure!(output.status.success(), "openssl cannot read base64");
    Ok(output.stdout)
}

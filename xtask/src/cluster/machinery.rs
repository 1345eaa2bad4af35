//! A control plane of Kubernetes on loopback: etcd, an API server with RBAC, and the controllers that matter here. No
//! node, no scheduler: `kubelet.rs` does their part.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::api::{Api, awaited};
use super::program::Program;
use crate::bench::service::{free_address, tie};
use crate::bench::stop;
use crate::command::{output, run};

/// Until the API server is ready, and the controllers work.
const START: Duration = Duration::from_secs(60);
/// Of all forty only these: they work after half a second instead of five, and none takes a node that says nothing for
/// dead.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,endpointslice-controller,namespace-controller,\
    serviceaccount-controller,garbage-collector-controller";
const ETCD: &str = "etcd";
const SERVER: &str = "kube-apiserver";
const MANAGER: &str = "kube-controller-manager";
/// Who may do everything.
const ADMIN: &str = "admin";

/// What runs, and where. All of it ends when dropped.
#[derive(Debug)]
pub struct Machinery {
    program: PathBuf,
    dir: PathBuf,
    address: SocketAddr,
    etcd: SocketAddr,
    /// Who may do everything.
    pub api: Api,
    token: String,
    /// In the order in which they were started.
    running: Vec<(&'static str, Child)>,
    /// How long it took until all of it worked.
    pub took: Duration,
}

/// Writes files that lead to the API server.
#[derive(Clone, Debug)]
pub struct Kubeconfigs {
    dir: PathBuf,
    address: SocketAddr,
}

impl Kubeconfigs {
    /// One for who has this token.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, token: &str, namespace: &str) -> Result<PathBuf> {
        let (file, authority) = (self.path(name), self.dir.join("ca.crt"));
        let cluster = serde_json::json!({
            "server": format!("https://{}", self.address), "certificate-authority": authority,
        });
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": cluster }],
            "users": [{ "name": "test", "user": { "token": token } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": namespace } }],
        });
        fs::write(&file, text.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.kubeconfig"))
    }
}

impl Machinery {
    /// Starts all of it, with its files in a folder.
    ///
    /// # Errors
    /// When something does not start; the message holds the end of its log.
    pub fn start(program: &Program, dir: &Path) -> Result<Self> {
        let began = Instant::now();
        let (etcd, peer, address) = (free_address()?, free_address()?, free_address()?);
        certificates(dir)?;
        let [admin, controllers] = [secret()?, secret()?];
        let manager = format!("system:{MANAGER}");
        let tokens = format!("{admin},{ADMIN},{ADMIN},\"system:masters\"\n{controllers},{manager},{manager}\n");
        fs::write(dir.join("tokens.csv"), tokens)?;
        let api = Api::new(&format!("https://{address}"), &dir.join("ca.crt"), &admin);
        let (path, dir) = (program.path.clone(), dir.to_owned());
        let mut all =
            Self { program: path, dir, address, etcd, api, token: admin, running: Vec::new(), took: Duration::ZERO };
        all.write_kubeconfig(ADMIN, &all.token, "default")?;
        all.write_kubeconfig(MANAGER, &controllers, "default")?;
        all.spawn(ETCD, &etcd_flags(&all.dir, etcd, peer))?;
        all.start_server()?;
        all.start_controllers()?;
        all.took = began.elapsed();
        Ok(all)
    }

    /// Where it is, for people.
    pub fn describe(&self) -> String {
        format!(
            "address     https://{}\nauthority   {}\ntoken       {}\nkubeconfig  {}",
            self.address,
            self.dir.join("ca.crt").display(),
            self.token,
            self.admin().display()
        )
    }

    /// A file that leads to it, as the one who has this token.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_kubeconfig(&self, name: &str, token: &str, namespace: &str) -> Result<PathBuf> {
        self.kubeconfigs().write(name, token, namespace)
    }

    /// Who writes files that lead to it.
    pub fn kubeconfigs(&self) -> Kubeconfigs {
        Kubeconfigs { dir: self.dir.clone(), address: self.address }
    }

    /// The file of the one who may do everything.
    pub fn admin(&self) -> PathBuf {
        self.kubeconfigs().path(ADMIN)
    }

    /// Starts the API server, at the port that it always has, on what etcd has.
    fn start_server(&mut self) -> Result<()> {
        let words = [
            format!("--etcd-servers=http://{}", self.etcd),
            format!("--bind-address={}", self.address.ip()),
            format!("--advertise-address={}", self.address.ip()),
            format!("--secure-port={}", self.address.port()),
            // Else it writes its own address, which must not be loopback, into an object.
            "--endpoint-reconciler-type=none".to_owned(),
            "--tls-cert-file=server.crt".to_owned(),
            "--tls-private-key-file=server.key".to_owned(),
            "--token-auth-file=tokens.csv".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--anonymous-auth=false".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-account-key-file=accounts.pub".to_owned(),
            "--service-account-signing-key-file=accounts.key".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ];
        self.spawn(SERVER, &words)?;
        self.await_all("the API server is ready", |api| Ok(api.is_ready().then_some(())))
    }

    fn start_controllers(&mut self) -> Result<()> {
        let words = [
            format!("--kubeconfig={}", self.kubeconfigs().path(MANAGER).display()),
            format!("--controllers={CONTROLLERS}"),
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials".to_owned(),
            "--service-account-private-key-file=accounts.key".to_owned(),
            "--root-ca-file=ca.crt".to_owned(),
        ];
        self.spawn(MANAGER, &words)?;
        self.await_all("the controllers work", |api| {
            // They make the account that pods need.
            Ok(api.get("/api/v1/namespaces/default/serviceaccounts/default").ok().map(drop))
        })
    }

    /// Kills the API server: connections break.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill_server(&mut self) -> Result<()> {
        self.kill(SERVER)
    }

    /// Starts the API server again, and the controllers: those that run look ever less often while there is none, and
    /// were late by 104 s after one was away for 45.
    ///
    /// # Errors
    /// When one does not work.
    pub fn bring_server(&mut self) -> Result<()> {
        self.start_server()?;
        self.kill(MANAGER)?;
        self.start_controllers()
    }

    fn kill(&mut self, name: &str) -> Result<()> {
        let at = self.running.iter().position(|(running, _)| *running == name);
        let (_, mut child) = self.running.remove(at.with_context(|| format!("no {name} runs"))?);
        child.kill()?;
        child.wait()?;
        stop::forget(child.id());
        Ok(())
    }

    /// Lets the API server stand still, or go on: connections stay, and nothing is answered meanwhile.
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze_server(&self, is_frozen: bool) -> Result<()> {
        let (_, server) = self.running.iter().find(|(name, _)| *name == SERVER).context("no API server runs")?;
        Ok(kill_process(Pid::from_child(server), if is_frozen { Signal::STOP } else { Signal::CONT })?)
    }

    /// Whether all of it still runs; else which one ended.
    pub fn ended(&mut self) -> Option<String> {
        let has_ended = |(_, child): &mut (&str, Child)| !matches!(child.try_wait(), Ok(None));
        let at = self.running.iter_mut().position(has_ended)?;
        let name = self.running[at].0;
        Some(format!("{name} ended: {}", self.log_end(name)))
    }

    fn spawn(&mut self, name: &'static str, words: &[String]) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.dir.join(format!("{name}.log")))?;
        let mut program = Command::new(&self.program);
        program.arg(name).args(words).current_dir(&self.dir);
        program.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        tie(&mut program);
        let child = program.spawn().with_context(|| format!("cannot start {}", self.program.display()))?;
        stop::remember(child.id());
        self.running.push((name, child));
        Ok(())
    }

    fn await_all(&mut self, what: &str, ask: impl Fn(&Api) -> Result<Option<()>>) -> Result<()> {
        let api = self.api.clone();
        awaited(what, START, || match self.ended() {
            Some(why) => bail!(why),
            None => ask(&api),
        })?;
        Ok(())
    }

    fn log_end(&self, name: &str) -> String {
        let text = fs::read_to_string(self.dir.join(format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Machinery {
    fn drop(&mut self) {
        // What they know goes with the folder, so that nobody needs time to write it down.
        while let Some((_, mut child)) = self.running.pop() {
            let _ended = child.kill();
            let _ended = child.wait();
            stop::forget(child.id());
        }
    }
}

fn etcd_flags(dir: &Path, clients: SocketAddr, peer: SocketAddr) -> [String; 7] {
    [
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls=http://{clients}"),
        format!("--advertise-client-urls=http://{clients}"),
        format!("--listen-peer-urls=http://{peer}"),
        format!("--initial-advertise-peer-urls=http://{peer}"),
        format!("--initial-cluster=default=http://{peer}"),
        "--unsafe-no-fsync".to_owned(),
    ]
}

/// An authority, a certificate of the API server, and the key that signs the tokens of service accounts.
fn certificates(dir: &Path) -> Result<()> {
    const SERVER: &str = "subjectAltName=IP:127.0.0.1,IP:10.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n";
    fs::write(dir.join("server.ext"), SERVER)?;
    let ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"].join(" ");
    for words in [
        format!(
            "req -x509 {ec} -days 2 -subj /CN=tidegate-cluster -keyout ca.key -out ca.crt \
             -addext keyUsage=critical,keyCertSign,cRLSign"
        ),
        format!("req {ec} -subj /CN=kube-apiserver -keyout server.key -out server.csr"),
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out server.crt -extfile server.ext"
            .to_owned(),
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out accounts.key".to_owned(),
        "pkey -in accounts.key -pubout -out accounts.pub".to_owned(),
    ] {
        let mut openssl = Command::new("openssl");
        openssl.args(words.split_whitespace()).current_dir(dir).stderr(Stdio::null());
        run(&mut openssl).context("openssl makes certificates; run `cargo xtask programs`")?;
    }
    Ok(())
}

fn secret() -> Result<String> {
    output(Command::new("openssl").args(["rand", "-hex", "16"]))
}

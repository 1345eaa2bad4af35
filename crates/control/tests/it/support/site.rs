//! A daemon on a thread of its own, and sentries as far as they speak with it.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;

use serde_json::Value;
use tempfile::TempDir;
use tidegate_control::{Config, Handle, Member, Question};
use tidegate_wire::control::{Channel, ControlKeys, FromControl, FromSentry, Hello};

use super::PATIENCE;
use super::folder::folder;

/// A control plane with one application, `shop`, whose servers always run and never answer.
pub struct Site {
    folder: TempDir,
    text: String,
    running: Option<Running>,
}

struct Running {
    handle: Handle,
    address: SocketAddr,
    names: Option<SocketAddr>,
    thread: JoinHandle<()>,
}

impl Site {
    /// Starts it; `more` are further lines of its configuration.
    pub fn start(more: &str) -> Site {
        Site::with(more, "kind = \"static\"\naddresses = [\"127.0.0.1:1\"]\n")
    }

    /// Starts one with this provider.
    pub fn with(more: &str, provider: &str) -> Site {
        let folder = folder();
        std::fs::write(folder.path().join("key"), "the secret of the tests").expect("a file");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nkey_file = \"key\"\nperiod = \"100ms\"\n{more}\n[provider]\n{provider}\n\
             [[application]]\nname = \"shop\"\ntarget = \"1s\"\n"
        );
        let mut site = Site { folder, text, running: None };
        site.begin();
        site
    }

    /// Ends the daemon and starts another one on the same store.
    pub fn restart(&mut self) {
        self.end();
        self.begin();
    }

    /// Where DNS queries go.
    pub fn names(&self) -> SocketAddr {
        self.running().names.expect("it answers names")
    }

    /// Where its key file is.
    pub fn key_file(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// How many records of a kind the audit log has.
    pub fn records(&self, kind: &str) -> usize {
        self.audit().as_array().expect("a list").iter().filter(|record| record["kind"] == kind).count()
    }

    /// The audit log.
    pub fn audit(&self) -> Value {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.running().handle.ask(Question::Audit(0))).expect("an answer")
    }

    fn config(&self) -> Config {
        Config::parse(&self.text, &self.folder.path().join("control.toml")).expect("makes sense")
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it runs")
    }

    fn begin(&mut self) {
        let config = self.config();
        let (started, wait) = mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let (daemon, handle) = Member::start(config, false).await.expect("starts");
                started.send((handle, daemon.address(), daemon.names_address())).expect("is waited for");
                daemon.run().await.expect("runs to its end");
            });
        });
        let (handle, address, names) = wait.recv_timeout(PATIENCE).expect("it starts");
        self.running = Some(Running { handle, address, names, thread });
    }

    fn end(&mut self) {
        let Some(Running { handle, thread, .. }) = self.running.take() else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(handle.stop());
        thread.join().expect("it ends well");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// A sentry's connection. Dropped, it is cut off.
pub struct Sentry {
    stream: TcpStream,
    channel: Channel,
}

impl Sentry {
    /// Connects, says who it is and where clients reach it, and is welcomed.
    pub fn connect(site: &Site, name: &str, address: &str) -> Sentry {
        let mut sentry = Sentry::begin(site, &site.config().keys, name, address);
        while !matches!(sentry.next(), FromControl::Welcome { .. }) {}
        sentry
    }

    /// One that connects with these keys, and says that this is its name, if it is welcomed; else it is cut off.
    pub fn welcomed(site: &Site, keys: &ControlKeys, name: &str) -> Option<Sentry> {
        let mut sentry = Sentry::begin(site, keys, name, "127.0.0.1");
        sentry.hears(|message| matches!(message, FromControl::Welcome { .. })).then_some(sentry)
    }

    fn begin(site: &Site, keys: &ControlKeys, name: &str, address: &str) -> Sentry {
        let stream = TcpStream::connect(site.running().address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let mut sentry = Sentry { stream, channel: Channel::connecting(keys) };
        let address: IpAddr = address.parse().expect("an address");
        let hello: FromSentry = FromSentry::Hello(Hello {
            sentry: name.to_owned(),
            instance: 1,
            addresses: vec![(String::from("shop"), address)],
            applications: vec![(String::from("shop"), 1)],
            asks: true,
        });
        sentry.channel.send(&hello);
        sentry.flush();
        sentry
    }

    /// Whether a message comes that is `wanted`, before the connection is over.
    fn hears(&mut self, wanted: impl Fn(&FromControl) -> bool) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.channel.poll_message().expect("a message") {
                Some(message) if wanted(&message) => return true,
                Some(_) => {}
                None => match self.stream.read(&mut buffer) {
                    Ok(read @ 1..) => {
                        self.channel.handle_bytes(&buffer[..read]).expect("its bytes are good");
                        self.flush();
                    }
                    Ok(0) => return false,
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
                    Err(error) => panic!("{error}"),
                },
            }
        }
    }

    /// The addresses of its servers, as soon as they are as many.
    #[cfg(feature = "kubernetes")]
    pub fn servers(&mut self, count: usize) -> Vec<String> {
        loop {
            let FromControl::Orders(orders) = self.next() else { continue };
            let servers: Vec<String> =
                orders.applications.iter().flat_map(|of| &of.servers).map(|server| server.address.clone()).collect();
            if servers.len() == count {
                return servers;
            }
        }
    }

    /// Says that it stops on purpose, and is gone.
    pub fn goodbye(mut self) {
        self.say_goodbye();
    }

    /// Says that it stops on purpose.
    pub fn say_goodbye(&mut self) {
        self.channel.send(&FromSentry::Goodbye);
        self.flush();
    }

    /// What the control plane says next.
    fn next(&mut self) -> FromControl {
        let mut buffer = [0; 4096];
        loop {
            match self.channel.poll_message().expect("a message") {
                Some(FromControl::Refused { why, .. }) => panic!("{why}"),
                Some(message) => return message,
                None => {
                    let read = self.stream.read(&mut buffer).expect("bytes");
                    assert!(read > 0, "the control plane hangs up");
                    self.channel.handle_bytes(&buffer[..read]).expect("its bytes are good");
                    self.flush();
                }
            }
        }
    }

    fn flush(&mut self) {
        while let Some(bytes) = self.channel.poll_bytes() {
            self.stream.write_all(&bytes).expect("sends");
        }
    }
}

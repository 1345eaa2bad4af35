//! A running service on loopback, and a visitor with a browser of sorts.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tidegate_mail::database::Database;
use tidegate_mail::generate::Mail;
use tidegate_mail::http::{Limits, listen, router, serve};
use tidegate_mail::policy::{Options, Policy};
use tidegate_mail::private_mariadb::PrivateMariaDb;
use tidegate_mail::service::Service;
use tidegate_testbed::free_address;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

pub const MINUTE: Duration = Duration::from_secs(60);

/// A folder that is removed in the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tidegate-mail-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn sqlite(&self) -> Database {
        Database::Sqlite(self.0.join("mail.db"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Whether MariaDB is there. With `CI=true`, or where the tests' programs were installed, it must be.
pub fn has_mariadb() -> bool {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let wanted = in_ci || std::env::var_os("TIDEGATE_HAVE_MARIADBD").is_some();
    let installed = PrivateMariaDb::is_installed();
    assert!(installed || !wanted, "MariaDB is not installed: cargo xtask programs");
    if !installed {
        println!("skipped: MariaDB is not installed (Debian package mariadb-server)");
    }
    installed
}

/// A MariaDB of the test's own, at an address that nobody else is given while it is away; none where there is none.
pub fn mariadb(folder: &Folder) -> Option<PrivateMariaDb> {
    let port = free_address().unwrap().port();
    has_mariadb().then(|| PrivateMariaDb::start(&folder.0, port).unwrap())
}

/// The seeds to run with: those kept because a test failed with them, then that of `TIDEGATE_SEED`, else a new one.
pub fn seeds(kept: &[u64]) -> Vec<u64> {
    let given = std::env::var("TIDEGATE_SEED").ok().map(|text| text.parse().expect("TIDEGATE_SEED is a number"));
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("TIDEGATE_SEED={seed}");
    kept.iter().copied().chain([seed]).collect()
}

/// A little mail: user1 and user2, one with 120 messages.
pub fn fill(database: &Database) {
    let mail = Mail { accounts: 2, largest: 120, text_bytes: 400, ..Mail::default() };
    mail.store(&mut *database.connect(MINUTE).unwrap(), |_| ()).unwrap();
}

/// Nothing is refused.
pub fn options() -> Options {
    Options { policy: Policy::None, target: MINUTE, timeout: MINUTE, connections: 2, workers: 2, ..Options::default() }
}

pub struct Site {
    pub address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Site {
    pub fn start(database: Database, options: Options) -> Site {
        let connections = if let Policy::Limit(limit) = options.policy { Some(limit) } else { None };
        let limits = Limits { connections, backlog: 64 };
        let service = Arc::new(Service::start(database, options, true, 1).unwrap());
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), limits).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let until = async {
            drop(stopped.await);
        };
        tokio::spawn(serve(listener, limits, router(service), until));
        Site { address, _stop: stop }
    }

    pub fn visitor(&self) -> Visitor {
        Visitor { address: self.address, headers: Vec::new() }
    }

    /// The account with more mail, signed in.
    pub async fn reader(&self) -> Visitor {
        let mut best = (0, self.visitor());
        for name in ["user1", "user2"] {
            let mut visitor = self.visitor();
            visitor.sign_in(name).await;
            let inbox = visitor.get("/folders").await.folder("Inbox");
            if inbox.1 > best.0 {
                best = (inbox.1, visitor);
            }
        }
        best.1
    }
}

pub struct Visitor {
    address: SocketAddr,
    /// Sent with every request.
    pub headers: Vec<(&'static str, String)>,
}

pub struct Page {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Visitor {
    pub async fn sign_in(&mut self, name: &str) -> Page {
        let page = self.post("/login", &format!("name={name}")).await;
        if let Some(cookie) = page.headers.get("set-cookie") {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
            self.headers.retain(|(name, _)| *name != "cookie");
            self.headers.push(("cookie", pair));
        }
        page
    }

    pub async fn get(&self, path: &str) -> Page {
        self.ask("GET", path, "").await
    }

    pub async fn post(&self, path: &str, form: &str) -> Page {
        self.ask("POST", path, form).await
    }

    /// Posts, and goes where it is told to.
    pub async fn submit(&self, path: &str, form: &str) -> Page {
        let page = self.post(path, form).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.text());
        self.get(page.headers["location"].to_str().unwrap()).await
    }

    async fn ask(&self, method: &str, path: &str, form: &str) -> Page {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "mail");
        if !form.is_empty() {
            request = request.header("content-type", "application/x-www-form-urlencoded");
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(form.to_owned()))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        Page { status, headers, bytes: response.into_body().collect().await.unwrap().to_bytes() }
    }
}

impl Page {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub fn has(&self, text: &str) -> bool {
        self.text().contains(text)
    }

    /// What stands between two texts, wherever they occur.
    pub fn all(&self, after: &str, until: &str) -> Vec<String> {
        let text = self.text();
        let starts = text.match_indices(after).map(|(at, _)| &text[at + after.len()..]);
        starts.filter_map(|rest| rest.split_once(until).map(|(found, _)| found.to_owned())).collect()
    }

    /// A folder's number, and how many messages it has.
    pub fn folder(&self, name: &str) -> (i64, i64) {
        let text = self.text();
        let (before, after) = text.split_once(&format!("\">{name}</a></td><td class=\"number\">")).unwrap();
        let id = before.rsplit('/').next().unwrap().parse().unwrap();
        (id, after.split('<').next().unwrap().parse().unwrap())
    }
}

//! Requests to the API server, by curl: a client that is not ours, as the program that is checked has one of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// How long an answer may take, seconds.
const PATIENCE: &str = "10";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
/// A server-side apply; its body may be YAML.
const APPLY: &str = "application/apply-patch+yaml";

/// A way to the API server, as somebody.
#[derive(Clone, Debug)]
pub struct Api {
    server: String,
    authority: PathBuf,
    token: String,
}

/// What it answered.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// An object, or why there is none.
    pub body: Value,
}

impl Api {
    /// As the one who has this token.
    pub fn new(server: &str, authority: &Path, token: &str) -> Self {
        Self { server: server.to_owned(), authority: authority.to_owned(), token: token.to_owned() }
    }

    /// An object, or a list of them.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.ask("GET", path, JSON, None)?.object()
    }

    /// Makes an object; one that is there already is no error.
    ///
    /// # Errors
    /// When it is refused.
    pub fn make(&self, path: &str, object: &Value) -> Result<Value> {
        let answer = self.ask("POST", path, JSON, Some(&object.to_string()))?;
        if answer.status == 409 { Ok(answer.body) } else { answer.object() }
    }

    /// Changes parts of an object.
    ///
    /// # Errors
    /// When it is refused.
    pub fn patch(&self, path: &str, parts: &Value) -> Result<Value> {
        self.ask("PATCH", path, MERGE, Some(&parts.to_string()))?.object()
    }

    /// Puts an object as a file has it.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn apply(&self, path: &str, text: &str) -> Result<Answer> {
        self.ask("PATCH", path, APPLY, Some(text))
    }

    /// Deletes an object; none is no error.
    ///
    /// # Errors
    /// When it is refused.
    pub fn delete(&self, path: &str, options: &Value) -> Result<()> {
        let answer = self.ask("DELETE", path, JSON, Some(&options.to_string()))?;
        if answer.status == 404 { Ok(()) } else { answer.object().map(drop) }
    }

    /// Who the bearer of the token of this service account is to the API server.
    ///
    /// # Errors
    /// When there is no such account.
    pub fn token_of(&self, namespace: &str, account: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let made = self.make(&path, &json!({ "spec": {} }))?;
        Ok(made["status"]["token"].as_str().context("no token was made")?.to_owned())
    }

    /// Whether it is ready.
    pub fn is_ready(&self) -> bool {
        self.ask("GET", "/readyz", JSON, None).is_ok_and(|answer| answer.status == 200)
    }

    /// Begins to follow what is at a path: a line of JSON for each change.
    ///
    /// # Errors
    /// When curl cannot be started.
    pub fn watch(&self, path: &str) -> Result<Child> {
        let mut curl = self.curl(path);
        curl.arg("--no-buffer").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        crate::bench::service::tie(&mut curl);
        curl.spawn().context("curl cannot be started; run `cargo xtask programs`")
    }

    fn ask(&self, method: &str, path: &str, kind: &str, body: Option<&str>) -> Result<Answer> {
        let mut curl = self.curl(path);
        curl.args(["--max-time", PATIENCE, "-X", method, "-w", "\n%{http_code}"]);
        curl.args(["-H", &format!("Content-Type: {kind}")])
            .args(body.map(|_| ["--data-binary", "@-"]).iter().flatten());
        curl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut curl = curl.spawn().context("curl cannot be started; run `cargo xtask programs`")?;
        let mut input = curl.stdin.take().context("curl reads nothing")?;
        input.write_all(body.unwrap_or_default().as_bytes())?;
        drop(input);
        let output = curl.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{method} {path}: {}", said.trim());
        let text = String::from_utf8(output.stdout).context("the API server answers with other things than text")?;
        let (body, status) = text.rsplit_once('\n').context("curl says no status")?;
        let body = serde_json::from_str(body).unwrap_or_else(|_| Value::from(body));
        Ok(Answer { status: status.parse().context("curl says no status")?, body })
    }

    fn curl(&self, path: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--cacert"]).arg(&self.authority);
        curl.args(["-H", &format!("Authorization: Bearer {}", self.token)]).arg(format!("{}{path}", self.server));
        curl
    }
}

impl Answer {
    /// The object, if it is one.
    ///
    /// # Errors
    /// When it was refused.
    pub fn object(self) -> Result<Value> {
        ensure!((200..300).contains(&self.status), "the API server answers {}: {}", self.status, self.why());
        Ok(self.body)
    }

    /// Why it was refused.
    pub fn why(&self) -> String {
        self.body["message"].as_str().map_or_else(|| self.body.to_string(), str::to_owned)
    }
}

/// Waits until something is there, for a time at most, and gives it with the time that it took.
///
/// # Errors
/// Those of the question, and when it does not come.
pub fn awaited<T>(what: &str, most: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<(T, Duration)> {
    let began = Instant::now();
    loop {
        if let Some(there) = ask()? {
            return Ok((there, began.elapsed()));
        }
        if began.elapsed() > most {
            bail!("after {} s not: {what}", most.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

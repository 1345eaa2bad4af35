//! A real browser, driven over a pipe by the DevTools protocol: JSON messages that end in a zero byte.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{PATIENCE, temporary};

/// The browser, as Debian calls it.
pub const PROGRAM: &str = "chromium";

/// One page of a headless Chromium. Dropped, the browser ends.
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    events: VecDeque<Value>,
    profile: PathBuf,
}

impl Browser {
    /// Starts one that can reach nothing but this machine.
    pub fn start() -> Browser {
        let profile = temporary("browser");
        // The protocol is spoken on descriptors 3 and 4, which a shell can arrange for.
        let script = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;
        let mut process = Command::new("sh")
            .args(["-c", script, PROGRAM])
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .arg("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1")
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the browser starts");
        let to = process.stdin.take().expect("a pipe to it");
        let stdout = process.stdout.take().expect("a pipe from it");
        let (told, from) = sync_channel(1000);
        std::thread::spawn(move || {
            let messages = BufReader::new(stdout).split(0).map_while(Result::ok);
            let messages = messages.filter_map(|message| serde_json::from_slice(&message).ok());
            // The test may be over.
            messages.take_while(|message: &Value| told.send(message.clone()).is_ok()).for_each(drop);
        });
        let mut browser = Browser { process, to, from, next: 0, session: None, events: VecDeque::new(), profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Makes the window so wide and high, and light or dark.
    pub fn resize(&mut self, width: u32, height: u32, scheme: &str) {
        let mobile = width < 600;
        let scale = if mobile { 2 } else { 1 };
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Opens a page.
    pub fn open(&mut self, url: &str) {
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
    }

    /// What an expression of JavaScript gives.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// The text of an element.
    pub fn text(&mut self, selector: &str) -> String {
        let expression = format!("document.querySelector({})?.innerText ?? ''", json!(selector));
        self.value(&expression).as_str().unwrap_or_default().to_owned()
    }

    /// The number that an element begins with.
    pub fn number(&mut self, selector: &str) -> f64 {
        let text = self.text(selector).replace(',', "");
        let digits: String = text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        digits.parse().unwrap_or(f64::NAN)
    }

    /// Clicks an element that is there and can be clicked.
    pub fn click(&mut self, selector: &str) {
        let expression = format!(
            "(() => {{ const e = document.querySelector({}); if (!e || e.disabled) return false; e.click(); \
             return true; }})()",
            json!(selector)
        );
        assert_eq!(self.value(&expression), true, "{selector} cannot be clicked");
    }

    /// Types into a field.
    pub fn fill(&mut self, selector: &str, text: &str) {
        self.value(&format!("document.querySelector({}).value = {}", json!(selector), json!(text)));
    }

    /// Polls until an expression holds.
    #[track_caller]
    pub fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.value(&format!("Boolean({expression})")) != true {
            assert!(Instant::now() < deadline, "waited in vain: {expression}\n{}", self.text("body"));
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// A picture of what the window shows.
    pub fn picture(&mut self) -> String {
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        answer["data"].as_str().unwrap_or_default().to_owned()
    }

    /// What went wrong on the page until now: errors and warnings of the console, exceptions, blocked content.
    pub fn complaints(&mut self) -> Vec<String> {
        self.value("0");
        let bad = |level: &Value| matches!(level.as_str(), Some("error" | "warning" | "assert"));
        let events = self.events.iter().filter(|event| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => bad(&event["params"]["type"]),
            Some("Log.entryAdded") => bad(&event["params"]["entry"]["level"]),
            _ => false,
        });
        events.map(|event| event["params"].to_string()).collect()
    }

    /// Forgets what happened until now.
    pub fn forget(&mut self) {
        self.value("0");
        self.events.clear();
    }

    /// Every address that the page asked for.
    pub fn requests(&mut self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| Some(event["params"]["request"]["url"].as_str()?.to_owned())).collect()
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = self.from.recv_timeout(left).unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == self.next {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may be gone already, and what is left in the temporary folder harms nobody.
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

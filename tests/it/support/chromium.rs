//! A Chromium without a screen, driven over pipes by its DevTools protocol: JSON, with a zero byte behind each message.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

/// A browser, and what it is told and says.
pub struct Chromium {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    sent: u64,
    // Removed when the process has ended.
    _profile: tempfile::TempDir,
}

/// A tab of it.
pub struct Tab<'a> {
    browser: &'a mut Chromium,
    session: String,
}

impl Chromium {
    /// Starts the one that `EXOBUS_CHROMIUM` names, else `chromium` on PATH; `cargo xtask test` provides one.
    pub fn start() -> Self {
        let program = std::env::var_os("EXOBUS_CHROMIUM").unwrap_or_else(|| "chromium".into());
        let profile = tempfile::tempdir().unwrap();
        // It reads from 3 and writes to 4; a shell has them there without anything unsafe.
        let mut process = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >&2 2>/dev/null"#])
            .arg(program)
            // As root it has no sandbox to make. What it opens is a page of ours.
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (requests, answers) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, requests, answers, sent: 0, _profile: profile }
    }

    /// Opens an empty tab.
    pub fn tab(&mut self) -> Tab<'_> {
        let target = self.ask("Target.createTarget", json!({ "url": "about:blank" }), None);
        let attached =
            self.ask("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }), None);
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        Tab { browser: self, session }
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value, session: Option<&str>) -> Value {
        self.sent += 1;
        let mut request = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut answer = Vec::new();
            self.answers.read_until(0, &mut answer).unwrap();
            assert_eq!(
                answer.pop(),
                Some(0),
                "Chromium has ended; EXOBUS_CHROMIUM names it, and `cargo xtask test` provides one"
            );
            let mut answer: Value = serde_json::from_slice(&answer).unwrap();
            // What has an id is no event.
            if answer["id"] == self.sent {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Tab<'_> {
    /// Opens an address, whatever is open, and waits until its page has this state (`data-state` of its root).
    pub fn open(&mut self, url: &str, state: &str) {
        // An address that differs in its fragment alone is no other page.
        for url in ["about:blank", url] {
            self.browser.ask("Page.navigate", json!({ "url": url }), Some(&self.session));
        }
        self.wait_for(state);
    }

    /// Waits until the page has this state.
    pub fn wait_for(&mut self, state: &str) {
        let state = json!(state);
        self.value(&format!(
            "new Promise(done => {{
                const look = () => document.documentElement?.dataset.state === {state} && done(true);
                new MutationObserver(look).observe(document, {{ attributes: true, childList: true, subtree: true }});
                look();
            }})"
        ));
    }

    /// What an expression of JavaScript is in the page, or what it promises.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut said = self.browser.ask("Runtime.evaluate", params, Some(&self.session));
        assert!(said["exceptionDetails"].is_null(), "{expression}: {said}");
        said["result"]["value"].take()
    }

    /// The text of each element that a selector means.
    #[track_caller]
    pub fn texts(&mut self, selector: &str) -> Vec<String> {
        let texts =
            self.value(&format!("[...document.querySelectorAll({})].map(it => it.textContent)", json!(selector)));
        serde_json::from_value(texts).unwrap()
    }
}

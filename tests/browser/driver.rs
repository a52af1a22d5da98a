//! Drives headless Chromium with the WebDriver protocol (W3C), spoken to chromedriver. Has only
//! what these tests need.

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::common::harness::{Scratch, Server, eventually};
use crate::common::proxy::HOST;

/// The key of an element reference (WebDriver §11).
pub(super) const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// What the console says of a page that asks on when its service has ended.
const ENDED: &str = "Failed to load resource: net::ERR_";

/// A name of this machine that is no secure context, as on a network without TLS.
pub(crate) const PLAIN_HOST: &str = "colors.test";

/// Has messages stay, which the page takes away after 12 seconds: a slow machine may look later.
const STAYING: &str = "{
    const set = setTimeout;
    window.setTimeout = (action, time, ...rest) => time === 12000 ? 0 : set(action, time, ...rest);
}";

/// One browser with a profile of its own; closed when dropped.
pub(crate) struct Browser {
    driver: Child,
    agent: ureq::Agent,
    session: String,
    /// Failures that the test brings about, by a part of what the console says of them.
    expected: RefCell<Vec<&'static str>>,
    _profile: Scratch,
}

/// Browsers between two tests. To start one takes much longer than to open a tab.
struct Pool {
    tests_under_way: usize,
    idle: Vec<Browser>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { tests_under_way: 0, idle: Vec::new() });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A browser that only one test uses, and the next one after it, unless the test has failed. The
/// last test closes all browsers, since nothing drops what is static.
struct Lease(Option<Browser>);

impl Lease {
    fn new() -> Self {
        // counted first, so that a start that fails is given up by the drop
        let mut lease = Self(None);
        let idle = {
            let mut pool = pool();
            pool.tests_under_way += 1;
            pool.idle.pop()
        };
        let browser = idle.inspect(Browser::forget).unwrap_or_else(Browser::start);
        browser.resize(1440, 900);
        browser.on_each_page(STAYING);
        lease.0 = Some(browser);
        lease
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let browser = self.0.take().filter(|_| !thread::panicking());
        let closed = {
            let mut pool = pool();
            pool.tests_under_way -= 1;
            pool.idle.extend(browser);
            if pool.tests_under_way == 0 { std::mem::take(&mut pool.idle) } else { Vec::new() }
        };
        drop(closed);
    }
}

/// A browser for one test, at whose end the console has to be free of errors.
pub(crate) struct Browsing(Lease);

/// A browser that shows nothing yet; `None`, and the test is skipped, where there is none.
pub(crate) fn browse() -> Option<Browsing> {
    super::has_chromium().then(|| Browsing(Lease::new()))
}

/// The same that shows the page of a service and has its list.
#[track_caller]
pub(crate) fn browse_to(server: Server) -> Option<(Browsing, Server)> {
    let browser = browse()?;
    browser.open(&server);
    Some((browser, server))
}

/// The same once the list may be changed.
#[track_caller]
pub(crate) fn browse_to_change(server: Server) -> Option<(Browsing, Server)> {
    let (browser, server) = browse_to(server)?;
    browser.expect_controls();
    Some((browser, server))
}

impl Deref for Browsing {
    type Target = Browser;

    fn deref(&self) -> &Browser {
        self.0.0.as_ref().expect("there is one until it is dropped")
    }
}

impl Drop for Browsing {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        let expected = self.expected.borrow();
        for entry in self.console() {
            let message = entry["message"].as_str().unwrap();
            assert!(expected.iter().any(|part| message.contains(part)), "in the console: {entry}");
        }
    }
}

impl Browser {
    fn start() -> Self {
        let profile = Scratch::new();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver runs");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, port) = line.split_once("successfully on port ")?;
            Some(port.trim_end_matches('.').to_owned())
        });
        let port = port.expect("chromedriver tells its port");
        // chromedriver goes on writing there
        thread::spawn(move || lines.for_each(drop));
        let arguments = [
            "--headless=new",
            "--no-sandbox", // which root cannot have
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--kiosk", // no frame, which costs a tenth of the time
            // pages of the browser itself, which each window loads beside its own
            "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup",
            // a mouse, which a headless machine lacks
            "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
            "--ignore-certificate-errors", // that of nginx is its own
            &format!("--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1, MAP {HOST} 127.0.0.1"),
            &format!("--user-data-dir={}", profile.0.display()),
        ];
        let capabilities = json!({"goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": {"args": arguments}});
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let session = format!("http://127.0.0.1:{port}/session");
        let mut browser =
            Self { driver, agent, session, expected: RefCell::new(vec![ENDED]), _profile: profile };
        let session =
            browser.call("POST", "", json!({"capabilities": {"alwaysMatch": capabilities}}));
        browser.session = format!("{}/{}", browser.session, session["sessionId"].as_str().unwrap());
        browser
    }

    /// Opens a tab, closes all others, and forgets what they have kept. What a tab is told of
    /// sizes, preferences and scripts ends with it, and so does what a page keeps for a session.
    fn forget(&self) {
        let tabs = self.call("GET", "/window/handles", Value::Null);
        let new = self.call("POST", "/window/new", json!({"type": "tab"}));
        for tab in tabs.as_array().unwrap() {
            self.switch(tab);
            self.call("DELETE", "/window", Value::Null);
        }
        self.switch(&new["handle"]);
        self.devtools("Network.clearBrowserCache", json!({}));
        self.devtools("Network.clearBrowserCookies", json!({}));
        self.console();
        *self.expected.borrow_mut() = vec![ENDED];
    }

    /// Errors and warnings in the console since the last call.
    fn console(&self) -> Vec<Value> {
        let log = self.call("POST", "/se/log", json!({"type": "browser"}));
        let is_bad = |entry: &&Value| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING"));
        log.as_array().unwrap().iter().filter(is_bad).cloned().collect()
    }

    #[track_caller]
    pub(super) fn call(&self, method: &str, command: &str, parameters: Value) -> Value {
        let request =
            ureq::http::Request::builder().method(method).uri(format!("{}{command}", self.session));
        let content = if method == "POST" { parameters.to_string() } else { String::new() };
        let request = request.header("Content-Type", "application/json").body(content).unwrap();
        let mut response = self.agent.run(request).expect("chromedriver answers");
        let text = response.body_mut().with_config().limit(64 << 20).read_to_string().unwrap();
        let mut answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(response.status(), 200, "{command}: {}", answer["value"]["message"]);
        answer["value"].take()
    }

    #[track_caller]
    pub(crate) fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.call("POST", "/goog/cdp/execute", json!({"cmd": command, "params": parameters}))
    }

    /// Has each page that is opened from now on begin with a script. Gives what takes that back.
    #[track_caller]
    pub(crate) fn on_each_page(&self, script: &str) -> Value {
        self.devtools("Page.addScriptToEvaluateOnNewDocument", json!({"source": script}))
    }

    /// A failure that the test brings about, by a part of what the console says of it.
    pub(crate) fn expect(&self, part: &'static str) {
        self.expected.borrow_mut().push(part);
    }

    /// Shows the page of a service and waits until it has the list.
    #[track_caller]
    pub(crate) fn open(&self, server: &Server) {
        self.go(&format!("http://{}/", server.address));
    }

    /// The same for a service that has just been started.
    #[track_caller]
    pub(crate) fn show(&self, server: Server) -> Server {
        self.open(&server);
        server
    }

    /// Waits until the page knows that the list may be changed.
    #[track_caller]
    pub(crate) fn expect_controls(&self) {
        self.expect_seen("#add");
    }

    #[track_caller]
    pub(crate) fn expect_seen(&self, selector: &str) {
        let is_seen = "checkVisibility({visibilityProperty: true})";
        self.until(&format!("return $('{selector}').{is_seen}"));
    }

    /// Shows the page at an address and waits until it has the list.
    #[track_caller]
    pub(crate) fn go(&self, address: &str) {
        self.go_without_waiting(address);
        self.until("return $('#count').textContent !== ''");
    }

    /// The same where no list will be shown. A color that was closed is still being left for a
    /// moment, by a step back in the history, which would take back the way to this address, too.
    #[track_caller]
    pub(crate) fn go_without_waiting(&self, address: &str) {
        let has_left = "!history.state || !location.hash.includes('color=')";
        self.until(&format!("return $('#opened')?.open || {has_left}"));
        self.call("POST", "/url", json!({"url": address}));
    }

    /// Loads the page again. Returns once the old page has gone.
    #[track_caller]
    pub(crate) fn reload(&self) {
        self.call("POST", "/refresh", json!({}));
    }

    /// Opens another tab, so that the first one is hidden; gives what leads back to it.
    pub(crate) fn hide(&self) -> Value {
        let tab = self.call("GET", "/window", Value::Null);
        let other = self.call("POST", "/window/new", json!({"type": "tab"}));
        self.switch(&other["handle"]);
        tab
    }

    pub(crate) fn switch(&self, tab: &Value) {
        self.call("POST", "/window", json!({"handle": tab}));
    }

    /// Runs a script in the page, and waits for what it promises.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Value {
        self.run_with(script, &json!([]))
    }

    #[track_caller]
    pub(crate) fn expect_value(&self, script: &str, expected: impl Into<Value>) {
        assert_eq!(self.run(script), expected.into());
    }

    /// The same with arguments. The script finds one element by `$`, and all by `$$`.
    #[track_caller]
    pub(crate) fn run_with(&self, script: &str, arguments: &Value) -> Value {
        const FIND: &str = "const $ = part => document.querySelector(part);
            const $$ = part => [...document.querySelectorAll(part)];";
        let script = format!("{FIND}{script}");
        self.call("POST", "/execute/sync", json!({"script": script, "args": arguments}))
    }

    /// Waits until a script gives something other than null, false, 0 or the empty string.
    #[track_caller]
    pub(crate) fn until(&self, script: &str) -> Value {
        eventually(script, || self.look(script, &json!([])))
    }

    /// What a script gives within a second, unless it is one of those. The page runs it again by
    /// itself: that costs much less than to be asked again.
    #[track_caller]
    pub(super) fn look(&self, script: &str, arguments: &Value) -> Option<Value> {
        let repeated = format!(
            "const look = () => {{ {script} }};
            const end = Date.now() + 1000;
            const again = () => look() || (Date.now() < end ? scheduler.postTask(again, {{delay: 10}}) : null);
            return again()"
        );
        let value = self.run_with(&repeated, arguments);
        (!value.is_null()).then_some(value)
    }

    /// Gives the page this many CSS pixels.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        self.resize_as(width, height, false);
    }

    /// The same, with a mouse or as a device that is touched.
    pub(crate) fn resize_as(&self, width: u32, height: u32, is_touch: bool) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_touch});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics);
        let touch = json!({"enabled": is_touch, "maxTouchPoints": 1});
        self.devtools("Emulation.setTouchEmulationEnabled", touch);
    }

    /// Sets a preference of the person, as `prefers-color-scheme`.
    pub(crate) fn prefer(&self, feature: &str, value: &str) {
        let features = json!({"features": [{"name": feature, "value": value}]});
        self.devtools("Emulation.setEmulatedMedia", features);
    }

    /// The role and the name of each part of the page, as screen readers are told of them.
    #[track_caller]
    pub(crate) fn read_out(&self) -> Vec<[String; 2]> {
        let tree = self.devtools("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().unwrap().iter();
        let text = |part: &Value| part["value"].as_str().unwrap_or_default().to_owned();
        let parts = nodes.filter(|node| node["ignored"] == false);
        parts.map(|node| [text(&node["role"]), text(&node["name"])]).collect()
    }

    /// What a command of the DevTools protocol makes: a picture of what is in view, or a document.
    #[track_caller]
    pub(crate) fn data(&self, command: &str, parameters: Value) -> Vec<u8> {
        let made = self.devtools(command, parameters);
        base64::engine::general_purpose::STANDARD.decode(made["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // This closes the browser; a test that has failed already may have lost it.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

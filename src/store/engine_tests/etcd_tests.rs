//! A key in an etcd of the test's own, asked by way of a proxy that can lose what it is to pass on.

use std::fs;
use std::io::{Read as _, Write as _};
use std::mem::replace;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::*;
use crate::store::etcd::EtcdKey;

/// What etcd answers to the commit by which it reaches its quota. It has made it then.
const NO_SPACE: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 64\r\n\r\n\
                          {\"code\":8,\"message\":\"etcdserver: mvcc: database space exceeded\"}";

/// What a member answers that has lost its leader.
const NO_LEADER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 45\r\n\r\n\
                           {\"message\":\"etcdserver: no leader\",\"code\":14}";

struct Etcd {
    process: Child,
    directory: PathBuf,
    members: Vec<String>,
    proxy: Arc<Proxy>,
}

#[derive(Default)]
struct Proxy {
    failure: Mutex<Option<CommitFailure>>,
    /// What comes in place of the next answer, and the end of the connection.
    next_answer: Mutex<Option<&'static [u8]>>,
    /// What was to be late is passed on now.
    is_released: AtomicBool,
    /// etcd has answered what was late.
    is_late_answered: AtomicBool,
}

impl Proxy {
    fn failure(&self) -> Option<CommitFailure> {
        *self.failure.lock().unwrap()
    }

    /// Passes on what a client and etcd send each other.
    fn pass_on(self: &Arc<Self>, mut client: TcpStream, mut etcd: UnixStream) {
        let mut answers = (etcd.try_clone().unwrap(), client.try_clone().unwrap());
        let proxy = Arc::clone(self);
        let is_late = Arc::new(AtomicBool::new(false));
        let was_late = Arc::clone(&is_late);
        std::thread::spawn(move || {
            let mut bytes = [0; 65536];
            while let Ok(length @ 1..) = answers.0.read(&mut bytes) {
                if was_late.load(Relaxed) {
                    proxy.is_late_answered.store(true, Relaxed);
                }
                let answer = match proxy.failure() {
                    None => proxy.next_answer.lock().unwrap().take(),
                    Some(_) => Some(&b""[..]),
                };
                // These fail if the client has gone.
                let _ = answers.1.write_all(answer.unwrap_or(&bytes[..length]));
                if answer.is_some() {
                    let _ = answers.1.shutdown(std::net::Shutdown::Both);
                }
            }
        });
        let mut bytes = [0; 65536];
        while let Ok(length @ 1..) = client.read(&mut bytes) {
            match self.failure() {
                Some(CommitFailure::Lost) => {
                    let _ = client.write_all(NO_LEADER);
                    continue;
                }
                Some(CommitFailure::Late) => {
                    is_late.store(true, Relaxed);
                    assert!(within(|| self.is_released.load(Relaxed)));
                }
                _ => {}
            }
            // Fails if etcd has gone.
            let _ = etcd.write_all(&bytes[..length]);
        }
    }
}

impl Etcd {
    /// `None` if etcd is not installed.
    fn start() -> Option<Self> {
        let directory = format!("colors-contract-etcd-{}", std::process::id());
        let directory = std::env::temp_dir().join(directory);
        fs::create_dir_all(&directory).unwrap();
        let mut command = Command::new("etcd");
        command.current_dir(&directory).args(["--data-dir", "data", "--name", "m0"]);
        // The files of its sockets are `localhost:1` and `localhost:2`.
        command.args(["--listen-client-urls", "unix://localhost:1"]);
        command.args(["--listen-peer-urls", "unix://localhost:2"]);
        let [client, peer] = ["--advertise-client-urls", "--initial-advertise-peer-urls"];
        command.args([client, "http://localhost:1", peer, "http://localhost:1"]);
        command.args(["--initial-cluster", "m0=http://localhost:1"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(process) = command.spawn() else {
            assert!(std::env::var_os("CI").is_none(), "etcd is not installed");
            // Nothing depends on the message.
            let _ = writeln!(std::io::stderr(), "skipped: etcd is not installed");
            return None;
        };
        let socket = directory.join("localhost:1");
        assert!(within(|| UnixStream::connect(&socket).is_ok()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let members = vec![listener.local_addr().unwrap().to_string()];
        let proxy = Arc::new(Proxy::default());
        let passing = Arc::clone(&proxy);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, proxy) = (client.unwrap(), Arc::clone(&passing));
                // Otherwise the second part of an answer waits 40 ms for an acknowledgement.
                client.set_nodelay(true).unwrap();
                let Ok(etcd) = UnixStream::connect(&socket) else { continue };
                std::thread::spawn(move || proxy.pass_on(client, etcd));
            }
        });
        Some(Self { process, directory, members, proxy })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl TestPlace for Etcd {
    fn open(&self, first: &ColorList) -> (Box<dyn Engine>, ColorList) {
        let open = || {
            let found = EtcdKey::find(&self.members, None, "contract").ok()?;
            found.check_usable().ok()?;
            let first = (!found.has_list()).then(|| first.clone());
            found.open(first, true).ok()
        };
        let mut opened = None;
        // On a busy machine, an answer may take longer than a start waits for it.
        assert!(within(|| {
            opened = open();
            opened.is_some()
        }));
        let opened = opened.expect("it is there");
        (opened.engine, opened.list)
    }

    fn commit_elsewhere(&self, list: &ColorList, edits: &[Edit]) -> bool {
        let mut other = Published::open(self, list);
        assert!(is_same(&other.list, list));
        matches!(other.save(edits), Commit::Done)
    }

    const FINDS_EACH_COMMIT: bool = true;
    const LOST: Certainty = Certainty::NotAsked;

    fn use_elsewhere(&self) -> Box<dyn Any> {
        Box::new(Published::open(self, &ColorList::default()))
    }

    fn longest_color(&self) -> Option<Color> {
        Some(color("long", &"x".repeat(700_000)))
    }

    fn fail(&self, failure: Option<CommitFailure>) -> bool {
        let before = replace(&mut *self.proxy.failure.lock().unwrap(), failure);
        let is_late = before == Some(CommitFailure::Late);
        self.proxy.is_released.store(false, Relaxed);
        self.proxy.is_late_answered.store(!is_late, Relaxed);
        true
    }

    fn release_late(&self) {
        self.proxy.is_released.store(true, Relaxed);
        assert!(within(|| self.proxy.is_late_answered.load(Relaxed)));
    }
}

/// It is asked for once more, and found to be made.
fn a_commit_with_another_answer_than_etcds_is_made_once(etcd: &Etcd) {
    for (key, answer) in [("lost", &b""[..]), ("full", NO_SPACE)] {
        let open = || {
            let found = EtcdKey::find(&etcd.members, None, key).unwrap();
            let first = (!found.has_list()).then(ColorList::default);
            let opened = Box::new(found).open(first, true).unwrap();
            Published { engine: opened.engine, list: opened.list }
        };
        let mut one = open();
        one.begin(false);
        *etcd.proxy.next_answer.lock().unwrap() = Some(answer);
        let edit = append(&one.list, "a", "1");
        assert!(matches!(one.write_and_commit(&[edit]), Commit::Done), "{key}");
        assert_eq!(*etcd.proxy.next_answer.lock().unwrap(), None);
        one.engine.roll_back();
        assert_eq!((one.poll(), open().list.iter().count()), (None, 1), "{key}");
    }
}

#[test]
fn etcd_does_what_the_writer_relies_on() {
    let Some(etcd) = Etcd::start() else { return };
    a_commit_with_another_answer_than_etcds_is_made_once(&etcd);
    engine_contract(etcd);
}

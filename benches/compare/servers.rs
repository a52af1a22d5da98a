//! Starts servers, waits until they listen, and stops them. Sends them nothing.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::colors::{self, Color};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::programs::Programs;
use crate::scratch::{self, Scratch};
use crate::{json_server, nginx, process};

/// How long a server may take to listen; callgrind and a million colors need some.
const START_MAX: Duration = Duration::from_secs(60);

/// How long a server may work off what its clients gave up on; json-server does so for a while.
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// Stands in the product's first line of output, before its address.
const LISTENING: &str = "listening on http://";

/// A running server; stopped when this value goes.
#[derive(Debug)]
pub(crate) struct Server {
    /// Which it is.
    pub(crate) kind: Kind,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// From its start until it listened.
    pub(crate) start_time: Duration,
    /// Its process, or that of its master.
    child: Child,
    /// Its files; removed after its end.
    _scratch: Scratch,
}

impl Server {
    /// Starts a server of this kind with these colors.
    ///
    /// # Errors
    /// When it is not installed, or does not listen in time.
    pub(crate) fn start(kind: Kind, programs: &Programs, colors: &[Color]) -> Result<Self, Failure> {
        let scratch = Scratch::new()?;
        let port = free_port()?;
        let peer = |program: &PathBuf| {
            let mut command = Command::new(program);
            command.args(["--port", &port.to_string(), "--seed"]).arg(scratch.write("seed.json", &colors::seed(colors))?);
            Ok(command)
        };
        let command = match kind {
            Kind::Colors => return Self::start_colors(Command::new(&programs.colors), colors),
            Kind::Axum => peer(&programs.axum)?,
            Kind::Actix => peer(&programs.actix)?,
            Kind::Nginx => nginx::command(&scratch, colors, port)?,
            Kind::JsonServer0 | Kind::JsonServer1 => json_server::command(kind, &scratch, colors, port)?,
        };
        Launch::new(kind, command, scratch)?.wait_for_port(port)
    }

    /// Starts a server that keeps its list in this file, which holds it already: the product, or a json-server.
    ///
    /// # Errors
    /// When it is not installed, or does not listen in time, as with a file that it cannot read.
    pub(crate) fn start_on(kind: Kind, programs: &Programs, file: &Path) -> Result<Self, Failure> {
        let scratch = Scratch::new()?;
        if kind == Kind::Colors {
            let mut command = Command::new(&programs.colors);
            command.arg("--data").arg(file);
            return Self::start_product(command, scratch);
        }
        let port = free_port()?;
        let command = json_server::serve(kind, &scratch, file, port)?;
        Launch::new(kind, command, scratch)?.wait_for_port(port)
    }

    /// Starts the product with these colors, by a command that lacks only the product's options.
    pub(crate) fn start_colors(mut command: Command, colors: &[Color]) -> Result<Self, Failure> {
        let scratch = Scratch::new()?;
        let seed = scratch.write("seed.json", &colors::seed(colors))?;
        command.arg("--seed").arg(seed);
        Self::start_product(command, scratch)
    }

    /// Starts the product by a command that lacks only where to listen.
    fn start_product(mut command: Command, scratch: Scratch) -> Result<Self, Failure> {
        command.args(["--listen", "127.0.0.1:0"]);
        // The product takes options from the environment, too; it is measured with its defaults.
        for (name, _) in env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"COLORS_")) {
            command.env_remove(name);
        }
        Launch::new(Kind::Colors, command, scratch)?.wait(|output| {
            let (_, address) = output.split_once(LISTENING)?;
            address.split_once(' ')?.0.parse().ok()
        })
    }

    /// CPU time that it has used so far.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        process::cpu(self.child.id())
    }

    /// Resident memory, in KiB.
    pub(crate) fn resident(&self) -> u64 {
        process::resident(self.child.id())
    }

    /// Bytes that it has had written to the disk so far.
    pub(crate) fn written(&self) -> u64 {
        process::written(self.child.id())
    }

    /// Ends it by force, wherever it is; returns when it has gone.
    pub(crate) fn kill(self) {
        process::kill_all(self.child.id());
    }

    /// Waits until it has nothing left to do.
    pub(crate) fn settle(&self) -> Result<(), Failure> {
        const LOOK: Duration = Duration::from_millis(50);
        const BUSY: Duration = Duration::from_millis(1); // in `LOOK`; no server here uses 2 % of a core when idle
        let deadline = Instant::now() + SETTLE_MAX;
        let mut before = self.cpu()?;
        loop {
            thread::sleep(LOOK);
            let now = self.cpu()?;
            if now - before < BUSY || Instant::now() > deadline {
                return Ok(());
            }
            before = now;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        process::stop(&mut self.child);
    }
}

/// A server that does not listen yet; stopped when this value goes, unless it became a [`Server`].
struct Launch {
    /// Which it is.
    kind: Kind,
    /// When it started.
    began: Instant,
    /// Its process and its files, until they are the server's.
    parts: Option<(Child, Scratch)>,
    /// Where its messages go.
    log: PathBuf,
}

impl Launch {
    /// Starts it.
    fn new(kind: Kind, mut command: Command, scratch: Scratch) -> Result<Self, Failure> {
        let log = scratch.path().join("log");
        let file = File::create(&log).map_err(|error| Failure::File(log.clone(), error))?;
        command.current_dir(scratch.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let began = Instant::now();
        let child = command.spawn().map_err(|error| Failure::Start(command.get_program().into(), error))?;
        Ok(Self { kind, began, parts: Some((child, scratch)), log })
    }

    /// Waits until the server listens on this port.
    fn wait_for_port(&mut self, port: u16) -> Result<Server, Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        self.wait(|_| TcpStream::connect(address).is_ok().then_some(address))
    }

    /// Waits until this function of what the server has printed finds its address.
    fn wait(&mut self, address: impl Fn(&str) -> Option<SocketAddr>) -> Result<Server, Failure> {
        while self.began.elapsed() < START_MAX {
            if let Some(address) = address(&fs::read_to_string(&self.log).unwrap_or_default()) {
                let start_time = self.began.elapsed();
                let (child, scratch) = self.parts.take().expect("a launch is waited for once");
                return Ok(Server { kind: self.kind, address, start_time, child, _scratch: scratch });
            }
            let has_ended = self.parts.as_mut().is_some_and(|(child, _)| !matches!(child.try_wait(), Ok(None)));
            if has_ended {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(Failure::Silent(self.kind, scratch::last_words(&self.log)))
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.parts {
            process::stop(child);
        }
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::NoPort)?;
    listener.local_addr().map(|address| address.port()).map_err(Failure::NoPort)
}

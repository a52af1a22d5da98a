//! Builds, starts and stops servers, and reads what the kernel knows of their processes. Sends them
//! nothing.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Sub;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;

use crate::workload::{Color, Workload, to_json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Colors,
    #[value(skip)]
    Before,
    /// With two workers, however many processors there are.
    #[value(name = "colors-2")]
    Colors2,
    TinyHttp,
    #[value(name = "tiny-http-64")]
    TinyHttp64,
    Oxhttp,
    Axum,
    /// Keeps the bytes of its list, as colors does.
    AxumBytes,
    #[value(name = "axum-1")]
    Axum1,
    Actix,
    #[value(name = "actix-1")]
    Actix1,
    Nginx,
    /// With the same colors as keys, in memory.
    Redis,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Colors => "colors",
            Self::Before => "before",
            Self::Colors2 => "colors, 2 workers",
            Self::TinyHttp => "tiny_http",
            Self::TinyHttp64 => "tiny_http 64",
            Self::Oxhttp => "oxhttp",
            Self::Axum => "axum",
            Self::AxumBytes => "axum, bytes",
            Self::Axum1 => "axum, 1 thread",
            Self::Actix => "actix-web",
            Self::Actix1 => "actix-web, 1 thread",
            Self::Nginx => "nginx, files",
            Self::Redis => "Redis",
        }
    }

    pub(crate) fn serves(self, workload: Workload) -> bool {
        match self {
            Self::Nginx => workload != Workload::Update,
            Self::Redis => workload != Workload::List,
            _ => true,
        }
    }
}

pub(crate) struct Programs {
    colors: PathBuf,
    pub(crate) before: Option<PathBuf>,
    peers: PathBuf,
}

impl Programs {
    /// Builds the peers and, unless it is given, the product in the parent directory.
    pub(crate) fn build(colors: Option<&Path>, before: Option<&Path>) -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let peers = build(here)?;
        let colors = match colors {
            Some(colors) => find(colors)?,
            None => build(&here.join(".."))?.join("colors"),
        };
        Ok(Self { colors, before: before.map(find).transpose()?, peers })
    }

    /// The build of colors that is measured as this kind.
    pub(crate) fn program(&self, kind: Kind) -> Result<&Path> {
        let before = (kind == Kind::Before)
            .then(|| self.before.as_deref().context("--before is not given"))
            .transpose()?;
        Ok(before.unwrap_or(&self.colors))
    }

    /// The command of a peer, which lacks only its arguments.
    pub(crate) fn peer(&self, name: &str) -> Command {
        Command::new(self.peers.join(name))
    }
}

fn find(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| path.display().to_string())
}

/// Builds all programs of a package and returns the directory that they are in.
fn build(package: &Path) -> Result<PathBuf> {
    let target = package.join("target");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--bins", "--target-dir"]).arg(&target);
    cargo.current_dir(package);
    ensure!(
        cargo.status().context("cargo")?.success(),
        "cargo build failed in {}",
        package.display()
    );
    Ok(target.join("release"))
}

/// A new directory, on the disk that this crate is on since `/tmp` may be in memory; and an address
/// whose port was free a moment ago.
pub(crate) fn place() -> Result<(TempDir, SocketAddr)> {
    let files = tempfile::Builder::new()
        .prefix("compare-")
        .tempdir_in(Path::new(env!("CARGO_MANIFEST_DIR")).join("target"))?;
    Ok((files, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?))
}

/// What a server has used of the machine: CPU time, user and system, that of threads that have
/// ended included; and how often one of its threads that are still there went to sleep or had to
/// give way.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu_us: f64,
    pub(crate) switches: f64,
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { cpu_us: self.cpu_us - before.cpu_us, switches: self.switches - before.switches }
    }
}

/// A running server; stopped when this value is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Child,
    /// Removed after the end of the process.
    _files: TempDir,
}

impl Server {
    /// Starts a server with this list.
    pub(crate) fn start(kind: Kind, programs: &Programs, colors: &[Color]) -> Result<Self> {
        let peer = |name, variables: &[(&str, &str)]| {
            let mut command = programs.peer(name);
            command.envs(variables.iter().copied());
            Self::start_peer(command, colors)
        };
        let started = match kind {
            Kind::Colors | Kind::Before => {
                Self::start_colors(Command::new(programs.program(kind)?), colors, false)
            }
            Kind::TinyHttp => {
                Self::start_plain(programs, colors, thread::available_parallelism()?.get())
            }
            Kind::TinyHttp64 => Self::start_plain(programs, colors, 64),
            Kind::Colors2 => {
                let mut command = Command::new(programs.program(kind)?);
                command.args(["--workers", "2"]);
                Self::start_colors(command, colors, false)
            }
            Kind::Oxhttp => peer("peer-oxhttp", &[]),
            Kind::Axum => peer("peer-axum", &[]),
            Kind::AxumBytes => peer("peer-axum", &[("KEEP_BYTES", "1")]),
            Kind::Axum1 => peer("peer-axum", &[("THREADS", "1")]),
            Kind::Actix => peer("peer-actix", &[]),
            Kind::Actix1 => peer("peer-actix", &[("THREADS", "1")]),
            Kind::Nginx => Self::start_nginx(colors),
            Kind::Redis => Self::start_redis(Command::new("redis-server"), false),
        };
        started.with_context(|| kind.name())
    }

    /// Starts the product by a command that lacks only its options.
    pub(crate) fn start_colors(
        mut command: Command,
        colors: &[Color],
        is_durable: bool,
    ) -> Result<Self> {
        let (files, address) = place()?;
        fs::write(files.path().join("list.json"), to_json(&colors))?;
        command.args(["--seed", "list.json", "--listen", &address.to_string()]);
        if is_durable {
            command.args(["--data", "colors.db"]);
        }
        // The product reads options from the environment, too; it is measured with its defaults.
        for (name, _) in
            env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"COLORS_"))
        {
            command.env_remove(name);
        }
        Self::launch(command, files, address)
    }

    /// Starts a peer by a command that lacks only its arguments.
    pub(crate) fn start_peer(mut command: Command, colors: &[Color]) -> Result<Self> {
        let (files, address) = place()?;
        fs::write(files.path().join("list.json"), to_json(&colors))?;
        command.args([&address.port().to_string(), "list.json"]);
        Self::launch(command, files, address)
    }

    /// Starts the plain design with so many threads.
    fn start_plain(programs: &Programs, colors: &[Color], threads: usize) -> Result<Self> {
        let (files, address) = place()?;
        fs::write(files.path().join("list.json"), to_json(&colors))?;
        let mut command = programs.peer("peer-tiny-http");
        command.args(["list.json", &address.port().to_string(), &threads.to_string()]);
        Self::launch(command, files, address)
    }

    fn start_nginx(colors: &[Color]) -> Result<Self> {
        let (files, address) = place()?;
        let path = |name: &str| files.path().join(name);
        let one = &colors[colors.len() / 2]; // the only one that is asked for
        let configuration =
            include_str!("../peers/nginx.conf").replace("DIR", &files.path().display().to_string());
        fs::write(
            path("nginx.conf"),
            configuration.replace("PORT", &address.port().to_string()).replace("NAME", &one.name),
        )?;
        fs::write(path("all.json"), json!({ "data": colors }).to_string())?;
        fs::write(path("one.json"), to_json(one))?;
        let mut command = Command::new("nginx");
        // Debian keeps nginx out of the path of ordinary users.
        command
            .env("PATH", env::var("PATH").unwrap_or_default() + ":/usr/sbin")
            .args(["-e", "stderr", "-c"])
            .arg(path("nginx.conf"));
        Self::launch(command, files, address)
    }

    /// Starts Redis, by a command that lacks only its options: in memory, or with a file of its own
    /// to which every change is synced before its answer.
    pub(crate) fn start_redis(mut command: Command, is_durable: bool) -> Result<Self> {
        let (files, address) = place()?;
        command.args([
            "--port",
            &address.port().to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            if is_durable { "yes" } else { "no" },
            "--appendfsync",
            "always",
        ]);
        Self::launch(command, files, address)
    }

    /// Runs the command in this directory and waits until something listens at this address.
    fn launch(mut command: Command, files: TempDir, address: SocketAddr) -> Result<Self> {
        let log = files.path().join("log");
        command
            .current_dir(&files)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        let began = Instant::now();
        let child = command
            .spawn()
            .with_context(|| format!("{} does not start", command.get_program().display()))?;
        let mut server = Self { address, child, _files: files };
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait()?.is_some();
            ensure!(
                !ended && began.elapsed().as_secs() < 60,
                "does not listen; it printed {:?}",
                fs::read_to_string(&log)?
            );
            thread::sleep(Duration::from_millis(1));
        }
        Ok(server)
    }

    /// Its process and the children of that: nginx's workers.
    fn processes(&self) -> Vec<i32> {
        let root = self.child.id();
        let children =
            fs::read_to_string(format!("/proc/{root}/task/{root}/children")).unwrap_or_default();
        [root as i32]
            .into_iter()
            .chain(children.split_whitespace().filter_map(|child| child.parse().ok()))
            .collect()
    }

    /// What it has used so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let mut usage = Usage { cpu_us: 0.0, switches: 0.0 };
        for process in self.processes() {
            usage.cpu_us +=
                Duration::from(clock_gettime(clock_getcpuclockid(Pid::from_raw(process))?)?)
                    .as_secs_f64()
                    * 1e6;
            for thread in fs::read_dir(format!("/proc/{process}/task"))? {
                let path = thread?.path();
                usage.switches += status(&path, "voluntary_ctxt_switches:")
                    + status(&path, "nonvoluntary_ctxt_switches:");
            }
        }
        Ok(usage)
    }

    /// Resident memory; pages that processes share count once for each.
    pub(crate) fn resident_mib(&self) -> f64 {
        self.processes()
            .into_iter()
            .map(|process| status(format!("/proc/{process}"), "VmRSS:"))
            .sum::<f64>()
            / 1024.0
    }
}

/// A number that the kernel tells of a process or thread, whose directory this is; 0 if it has
/// ended.
fn status(directory: impl AsRef<Path>, title: &str) -> f64 {
    let status = fs::read_to_string(directory.as_ref().join("status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix(title)?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // SIGTERM has nginx end its workers. If the process has just ended, all the better.
            let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

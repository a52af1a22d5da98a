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
    Axum,
    Actix,
    Nginx,
    Floor,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        ["colors", "before", "axum", "actix-web", "nginx", "floor"][self as usize]
    }

    pub(crate) fn serves(self, workload: Workload) -> bool {
        match self {
            Self::Nginx => !matches!(workload, Workload::Update | Workload::CreateDelete),
            Self::Floor => matches!(workload, Workload::ReadOne | Workload::NewConnection),
            _ => true,
        }
    }
}

pub(crate) struct Programs {
    pub(crate) colors: PathBuf,
    pub(crate) before: Option<PathBuf>,
    peers: PathBuf,
}

impl Programs {
    /// The product: what is given, or a build of the parent directory.
    pub(crate) fn find_colors(given: Option<&Path>) -> Result<PathBuf> {
        given.map_or_else(
            || Ok(build(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &[])?.join("colors")),
            find,
        )
    }

    pub(crate) fn build(colors: Option<&Path>, before: Option<&Path>) -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let peers =
            build(here, &["--bin", "peer-axum", "--bin", "peer-actix", "--bin", "peer-floor"])?;
        Ok(Self {
            colors: Self::find_colors(colors)?,
            before: before.map(find).transpose()?,
            peers,
        })
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

/// Builds programs and returns the directory that they are in.
fn build(package: &Path, options: &[&str]) -> Result<PathBuf> {
    let target = package.join("target");
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--release", "--locked"])
        .args(options)
        .arg("--target-dir")
        .arg(&target)
        .current_dir(package);
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
    /// From the start of the process until it listened.
    pub(crate) start_time: Duration,
    child: Child,
    /// Removed after the end of the process.
    _files: TempDir,
}

impl Server {
    /// Starts a server with this list. `response` is what the floor sends.
    pub(crate) fn start(
        kind: Kind,
        programs: &Programs,
        colors: &[Color],
        response: &[u8],
    ) -> Result<Self> {
        let peer = |name, content: &[u8]| Self::start_peer(programs.peer(name), content);
        let started = match kind {
            Kind::Colors | Kind::Before => {
                Self::start_colors(Command::new(programs.program(kind)?), colors, false)
            }
            Kind::Axum => peer("peer-axum", to_json(&colors).as_bytes()),
            Kind::Actix => peer("peer-actix", to_json(&colors).as_bytes()),
            Kind::Floor => peer("peer-floor", response),
            Kind::Nginx => Self::start_nginx(colors),
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
    pub(crate) fn start_peer(mut command: Command, content: &[u8]) -> Result<Self> {
        let (files, address) = place()?;
        fs::write(files.path().join("content"), content)?;
        command.args([&address.port().to_string(), "content"]);
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

    /// Starts Redis with a file of its own to which every change is synced before its answer.
    pub(crate) fn start_redis() -> Result<Self> {
        let (files, address) = place()?;
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &address.port().to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ]);
        Self::launch(command, files, address)
    }

    /// Runs the command in this directory and waits until something listens at this address.
    pub(crate) fn launch(
        mut command: Command,
        files: TempDir,
        address: SocketAddr,
    ) -> Result<Self> {
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
        let mut server = Self { address, start_time: Duration::ZERO, child, _files: files };
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait()?.is_some();
            ensure!(
                !ended && began.elapsed().as_secs() < 60,
                "does not listen; it printed {:?}",
                fs::read_to_string(&log)?
            );
            thread::sleep(Duration::from_millis(1));
        }
        server.start_time = began.elapsed();
        Ok(server)
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
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
pub(crate) fn status(directory: impl AsRef<Path>, title: &str) -> f64 {
    let status = fs::read_to_string(directory.as_ref().join("status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix(title)?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0.0)
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // SIGTERM has nginx end its workers, and callgrind print its sums. If the process has
            // just ended, all the better.
            let _ = kill(self.id(), Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}

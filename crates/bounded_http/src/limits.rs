//! How many connections and how much memory clients may use, by the limits that the system sets for
//! the process, and how much of that each connection uses.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::response::SharedContent;
use super::shared::Shared;

/// Greatest value of [`buffers_within`]: 512 requests of 64 KiB that are arriving. A whole request
/// with content may count for more: [`Limits::content_factor`].
const BUFFERS_MAX: usize = 32 * 1024 * 1024;

/// Least value of [`buffers_within`], for a small limit of the control group: 32 requests of 64 KiB
/// that are arriving.
const BUFFERS_MIN: usize = 2 * 1024 * 1024;

/// A connection whose buffers have no more bytes than this counts as having none, so that a small
/// request is served however much memory the other connections take.
const UNCOUNTED_BYTES: usize = 4096;

/// Upper bound of the connection limit: several times what a small host serves.
const CONNECTIONS_MAX: usize = 8192;

/// Bytes of the control group's limit for each connection. An idle connection takes less than 2 KiB
/// here; the rest is for buffers, and for what the kernel has of it.
const MEMORY_PER_CONNECTION: usize = 64 * 1024;

/// Descriptors kept for other uses than connections: standard streams, and whatever else the
/// application opens.
const DESCRIPTORS_RESERVED: usize = 32;

/// Longest time that a limit has: the kernel takes up to 24 days for TCP_USER_TIMEOUT.
pub(super) const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Most connections above the limit. New clients are answered on them at once, while workers make
/// room by closing stalled connections.
const SPARE_CONNECTIONS_MAX: usize = 64;

/// A value for [`Limits::buffers_max`], in bytes: a sixteenth of `limit`, but at least 2 MiB and at
/// most 32 MiB. Without a limit, 32 MiB. `limit`: bytes that the process may use, from
/// [`control_group_limit`].
///
/// Shared contents that clients read come on top, with up to twice as much. The rest is for the
/// application, the allocator and the kernel's buffers.
pub fn buffers_within(limit: Option<usize>) -> usize {
    limit.map_or(BUFFERS_MAX, |limit| (limit / 16).clamp(BUFFERS_MIN, BUFFERS_MAX))
}

/// How many connections there may be above the limit: an eighth of it, at least 1, and no more than
/// [`SPARE_CONNECTIONS_MAX`].
pub(super) fn spare_connections(connections_max: usize) -> usize {
    (connections_max / 8).clamp(1, SPARE_CONNECTIONS_MAX)
}

/// Raises the soft limit of descriptors (`RLIMIT_NOFILE`) to the hard one, if the system allows it.
/// Returns how many the process may have.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the old limit counts.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// A value for [`Limits::connections_max`], from 1 to 8,192: as many connections as the descriptors
/// and the memory of the process suffice for.
///
/// - `descriptors`: how many the process may have, from [`raise_descriptor_limit`]. The server
///   needs one for each listener, two for each worker, and one for each connection, also for those
///   that it accepts above the limit. 32 are left for other uses.
/// - `memory`: bytes that the process may use, from [`control_group_limit`]; `None` without a
///   limit. Each connection is given 64 KiB.
///
/// # Errors
///
/// If there are not even descriptors for one connection and one above the limit.
pub fn connections_within(
    descriptors: usize,
    memory: Option<usize>,
    listeners: usize,
    workers: usize,
) -> io::Result<usize> {
    // Each worker has an epoll instance and an eventfd.
    let others = DESCRIPTORS_RESERVED + listeners + 2 * workers;
    if descriptors < others + 2 {
        return Err(io::Error::other(format!(
            "the process may have {descriptors} descriptors and needs {}; raise the limit \
             (ulimit -n, LimitNOFILE=)",
            others + 2
        )));
    }
    let available = descriptors - others;
    let by_descriptors = available - spare_connections(available);
    let by_memory = memory.unwrap_or(usize::MAX) / MEMORY_PER_CONNECTION;
    Ok(by_descriptors.min(by_memory).clamp(1, CONNECTIONS_MAX))
}

/// How many bytes of memory the control group of the process may use (cgroups(7), version 2): the
/// lowest of the limits of its own group and of those above it. `None` if there is none, or none
/// can be read.
pub fn control_group_limit() -> Option<usize> {
    lowest_limit(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// `root`: where the control groups are mounted. `groups`: the text of `/proc/self/cgroup`.
fn lowest_limit(root: &Path, groups: &str) -> Option<usize> {
    // Version 2 is hierarchy 0, without a list of controllers (cgroups(7)).
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = root.join(group);
    let above = own.ancestors().take_while(|group| group.starts_with(root));
    let files = above.filter_map(|group| fs::read_to_string(group.join("memory.max")).ok());
    // Without a limit, the file has "max".
    files.filter_map(|limit| limit.trim_ascii().parse().ok()).min()
}

/// What clients may use. By default: 1,024 connections, 32 MiB of buffers, 30 s for a request,
/// 75 s idle, and contents of 1 MiB.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most connections. Above it, each response closes its connection, and connections whose
    /// client has made no progress for half a second are closed to make room. Meanwhile an eighth
    /// more, from 1 to 64, are accepted and served. All others wait in the queue of the kernel.
    pub connections_max: usize,
    /// Most bytes of requests and responses in the buffers of all connections together. Beyond it,
    /// a request gets a 503, and a client that has a part of a response and does not read the rest
    /// is disconnected. A connection that uses no more than 4 KiB is not counted, and one may
    /// exceed the limit while the others use no more than half of it.
    pub buffers_max: usize,
    /// How long a request may take to arrive: 408. Also how long a client may read nothing of a
    /// response, or a new client send nothing, before it is disconnected. At most a week.
    pub request_timeout: Duration,
    /// How long a connection may be idle after a response, at most a week. Then it is closed, with
    /// a grace of 1 s.
    /// Clients are told the time in the field Keep-Alive, in whole seconds, at least one.
    pub keep_alive: Duration,
    /// The longest content of a request in bytes, without its transfer coding: 413.
    pub content_max: usize,
    /// For how many bytes against [`Limits::buffers_max`] each byte of a content counts from when
    /// the request is received until it is answered. Above 1 if the application makes more of it.
    pub content_factor: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            buffers_max: BUFFERS_MAX,
            request_timeout: Duration::from_secs(30),
            keep_alive: Duration::from_secs(75),
            content_max: 1024 * 1024,
            content_factor: 1,
        }
    }
}

/// One connection's part of the connection limit and of [`Limits::buffers_max`], until it is
/// dropped: by the connection, or by whoever has its request if that takes longer.
pub(super) struct Quota {
    pub(super) shared: Arc<Shared>,
    /// The number of the worker that serves the connection.
    pub(super) worker: usize,
    memory: AtomicUsize,
}

impl Quota {
    pub(super) fn new(shared: Arc<Shared>, worker: usize) -> Self {
        shared.workers[worker].open.fetch_add(1, Relaxed);
        Self { shared, worker, memory: AtomicUsize::new(0) }
    }

    /// Sets how many bytes the connection counts for: its buffers, and a request that awaits its
    /// answer.
    pub(super) fn set_memory(&self, bytes: usize) {
        let bytes = if bytes > UNCOUNTED_BYTES { bytes } else { 0 };
        let before = self.memory.load(Relaxed);
        if bytes != before {
            self.shared.memory.fetch_add(bytes, Relaxed);
            self.shared.memory.fetch_sub(before, Relaxed);
            self.memory.store(bytes, Relaxed);
        }
    }

    /// Whether [`Limits::buffers_max`] forbids the connection this many bytes. The connection may
    /// exceed it while the others use up to half: otherwise a longer content could never be sent.
    /// Up to [`UNCOUNTED_BYTES`] are always allowed.
    pub(super) fn would_exceed(&self, bytes: usize) -> bool {
        let others = self.shared.memory.load(Relaxed).saturating_sub(self.memory.load(Relaxed));
        let max = self.shared.limits.buffers_max;
        bytes > UNCOUNTED_BYTES && others > max / 2 && others + bytes > max
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.set_memory(0);
        self.shared.workers[self.worker].open.fetch_sub(1, Relaxed);
    }
}

/// How many references to a content each client has that reads it: that of its output, and that of
/// the [`Reading`].
const REFERENCES: usize = 2;

/// A client that has a part of a shared content, and not yet all of it.
///
/// Shared contents do not count against [`Limits::buffers_max`], since the application has them in
/// memory anyway. Once it drops one, slow clients alone keep that content, which then is orphaned.
/// Without a limit, an application that often replaces a long content could have any number of them
/// in memory.
pub(super) struct Reading {
    shared: Arc<Shared>,
    content: SharedContent,
    begun: Instant,
}

impl Reading {
    pub(super) fn new(shared: &Arc<Shared>, content: &SharedContent, begun: Instant) -> Self {
        if content.add_reader() {
            shared.read_bytes.fetch_add(content.bytes().len(), Relaxed);
        }
        Self { shared: Arc::clone(shared), content: content.clone(), begun }
    }

    /// When the client has to have all of it. `None` while the content is not orphaned, or while
    /// there is memory enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if !self.content.is_orphaned(REFERENCES) {
            return None;
        }
        Some(self.begun + self.shared.reading_time(self.content.bytes().len())?)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.content.remove_reader() {
            self.shared.read_bytes.fetch_sub(self.content.bytes().len(), Relaxed);
        }
    }
}

impl Shared {
    /// Whether the shared contents that clients read take more than [`Limits::buffers_max`].
    pub(super) fn is_reading_much(&self) -> bool {
        self.read_bytes.load(Relaxed) > self.limits.buffers_max
    }

    /// How long a client may take to read an orphaned content of this length. `None` while the
    /// contents that clients read take no more than [`Limits::buffers_max`], or than twice this
    /// length if that is longer: so a long content and the one that replaces it can always be read
    /// to their end. Beyond that, the time falls from the request timeout to nothing at twice as
    /// much. So the client that has taken longest is closed first.
    fn reading_time(&self, length: usize) -> Option<Duration> {
        let bytes = self.read_bytes.load(Relaxed);
        let enough = self.limits.buffers_max.max(2 * length);
        if bytes <= enough {
            return None;
        }
        let left = (2 * enough).saturating_sub(bytes) as f64 / enough as f64;
        Some(self.limits.request_timeout.mul_f64(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Handle;
    use crate::test_application::LIMITS;

    #[test]
    fn the_memory_is_a_sixteenth_of_the_limit_of_the_control_group() {
        let mib = |mib: usize| mib * 1024 * 1024;
        for (limit, expected) in [
            (None, 32),
            (Some(mib(4096)), 32),
            (Some(mib(64)), 4),
            (Some(mib(32)), 2),
            (Some(mib(1)), 2),
        ] {
            assert_eq!(buffers_within(limit), mib(expected), "{limit:?}");
        }
    }

    #[test]
    fn the_limit_is_the_lowest_of_the_group_and_those_above_it() {
        let root = std::env::temp_dir()
            .join(format!("bounded-http-control-groups-{}", std::process::id()));
        let directory = root.join("system.slice/web.service");
        fs::create_dir_all(&directory).unwrap();
        let check = |groups: &str, expected| {
            assert_eq!(lowest_limit(&root, groups), expected, "{groups:?}")
        };
        let groups = "1:memory:/other\n0::/system.slice/web.service\n";
        check(groups, None);
        for (file, text, expected) in [
            ("system.slice/web.service/memory.max", "max\n", None),
            ("system.slice/memory.max", "50331648\n", Some(50_331_648)),
            ("system.slice/web.service/memory.max", "33554432\n", Some(33_554_432)),
            // In a container, the process's own group is the root.
            ("memory.max", "1048576\n", Some(1_048_576)),
        ] {
            fs::write(root.join(file), text).unwrap();
            check(groups, expected);
        }
        check("0::/\n", Some(1_048_576));
        check("0::/../elsewhere\n", Some(1_048_576));
        check("4:memory:/other\n", None);
        check("", None);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn connections_are_refused_more_memory_than_all_may_use_together() {
        let server = Handle::new(1, LIMITS).unwrap();
        let quota = || Quota::new(Arc::clone(&server.0), 0);
        let (one, other) = (quota(), quota());
        assert!(!other.would_exceed(10_001));
        one.set_memory(5_000);
        assert!(!other.would_exceed(10_001), "half of it is left");
        one.set_memory(5_001);
        assert!(other.would_exceed(5_000) && !other.would_exceed(4_999));
        assert!(!one.would_exceed(10_001));
        drop(one);
        assert!(!other.would_exceed(10_001));
    }

    #[test]
    fn what_only_its_readers_have_takes_limited_memory() {
        let shared = &Handle::new(1, LIMITS).unwrap().0;
        let start = Instant::now();
        let read_bytes = || shared.read_bytes.load(Relaxed);
        // each content has two clients, which begin to read it at this second
        let read = |content: &SharedContent, seconds: u64| {
            let begun = start + Duration::from_secs(seconds);
            [(); 2].map(|()| (content.clone(), Reading::new(shared, content, begun)))
        };
        // each deadline, in seconds
        let deadlines = |contents: &[[(SharedContent, Reading); 2]]| -> Vec<Option<f64>> {
            let deadline =
                |(_, reading): &(_, Reading)| Some((reading.deadline()? - start).as_secs_f64());
            contents.iter().flatten().map(deadline).collect()
        };
        let mut contents = Vec::new();
        for number in 0..5 {
            let content = SharedContent::new(vec![0; 4_000]);
            contents.push(read(&content, number));
            assert_eq!(contents.len() * 4_000, read_bytes());
            let newest = deadlines(&contents[contents.len() - 1..]);
            assert_eq!(newest, [None; 2], "the application refers to it");
            drop(content);
            if number < 2 {
                assert_eq!(deadlines(&contents), vec![None; 2 * contents.len()], "there is room");
            }
        }
        // twice the limit of 10,000
        assert_eq!(deadlines(&contents), [0., 0., 1., 1., 2., 2., 3., 3., 4., 4.].map(Some));
        // the older ones are closed: 2,000 more than the limit, so 8 tenths of 30 s are left
        contents.drain(..2);
        assert_eq!(deadlines(&contents), [26., 26., 27., 27., 28., 28.].map(Some));
        drop(contents);
        assert_eq!(read_bytes(), 0);
    }
}

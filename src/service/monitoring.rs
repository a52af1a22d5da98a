//! `/health` and `/metrics`: the state of the service.

use std::fmt::Display;
use std::fs;
use std::iter;
use std::time::{SystemTime, UNIX_EPOCH};

use bounded_http::{Closing, Content, Phase};
use tiny_http::{Method, StatusCode};

use super::Service;
use super::respond::read;
use crate::conditions::Tag;
use crate::follow_status::FollowStatus;
use crate::http::{METHODS, MediaType, Request, Response, rfc3339};
use crate::logging;
use crate::metrics::{
    BOUNDS, CLASSES, Counter, FIRST_BOUND, Histogram, StorageMetrics, closing_label,
};
use crate::store::StorageStatus;

/// The metric families, one per line: name, type and help.
const FAMILIES: &str = "\
colors_http_requests_total counter Responses by method and class of status; other: also what is no \
request.
colors_http_request_duration_seconds histogram Time to answer a request that the service has \
received; durable: changes with --data, also those that leave nothing to save, such as a 404 or a 412.
colors_connections gauge Open connections.
colors_connections_max gauge Connections above which stalled ones are closed.
colors_requests_waiting gauge Requests that wait for a change of the list.
colors_connections_closed_total counter Connections closed by the service, by reason: idle; \
request: not received in time; unread: a response; old_list, no_room: memory and connections.
colors_workers gauge Event loops.
colors_colors gauge Colors in the list.
colors_list_bytes gauge Bytes of the list as JSON.
colors_saves_total counter Saves that succeeded; those of several changes together count once.
colors_save_failures_total counter Saves that failed, those tried again included.
colors_save_duration_seconds histogram Time of a save that succeeded.
colors_followed_answered_timestamp_seconds gauge When the service that is followed last answered.
colors_followed_up gauge 1, or 0 while the service that is followed has not answered for 5 s.
colors_log_lines_dropped_total counter Log lines dropped: standard error was not read fast enough.
colors_log_warnings_total counter Warnings that were logged, or left out because there were too \
many.
colors_build_info gauge The version of the program, with the commit unless it is a release.
process_start_time_seconds gauge Start of the process in seconds since 1970.
process_cpu_seconds_total counter Processor time in user and in kernel mode.
process_resident_memory_bytes gauge Resident memory.
";

/// The label `method` of all but [`METHODS`]: a client must not be able to create time series.
const OTHER: &str = "other";

impl Service {
    /// The response to a read of `/health`: 503 with what is wrong as `status`, or else 200, 304 or
    /// what the conditions lead to. Tells what is known: asks neither the disk nor another service.
    pub(super) fn health(&self, request: &Request<'_>) -> Response {
        let storage = self.storage.as_deref();
        let is_stopping = self.server.phase() == Phase::Stopping;
        let stopping = || is_stopping.then(|| "stopping".to_owned());
        let followed = self.followed.as_deref();
        let fault = storage.and_then(StorageStatus::fault);
        let fault = fault.or_else(|| followed.and_then(FollowStatus::fault)).or_else(stopping);
        let mut health = serde_json::json!({
            "status": fault.as_deref().unwrap_or("ok"),
            "version": env!("BUILD_VERSION"),
            "colors": self.list.size().0,
        });
        if let Some(status) = storage {
            let now = status.now();
            health["saved"] = now.saved.map(rfc3339).into();
            if let Some(warning) = now.warning {
                health["warning"] = warning.into();
            }
        }
        if let Some(followed) = followed {
            health["follows"] = followed.url.as_str().into();
            health["answered"] = followed.answered().map(rfc3339).into();
        }
        let text = format!("{health}\n").into_bytes();
        // RFC 9110 §13.2.1: conditions count only where the response would be a success without
        // them.
        match fault {
            None => {
                let tag = Tag::of(&text);
                read(request, Content::Own(text), tag)
            }
            Some(_) => Response::new(StatusCode(503), Content::Own(text)),
        }
    }

    /// The metrics in the text format of Prometheus, version 0.0.4.
    pub(super) fn metrics(&self) -> Response {
        let Self { metrics, server, .. } = self;
        // In bytes: the text has some 7 KiB.
        let mut text = Exposition { text: String::with_capacity(8 * 1024), family: "" };
        text.family("colors_http_requests_total");
        for (method, name) in METHODS.iter().map(Method::as_str).chain([OTHER]).enumerate() {
            for (class, status) in CLASSES.iter().enumerate() {
                let count = metrics.sum(|worker| &worker.responses[method][class]);
                text.sample(&format!("{{method=\"{name}\",status=\"{status}\"}}"), count);
            }
        }
        let workers = metrics.workers.iter();
        text.family("colors_http_request_duration_seconds");
        text.histogram("durable=\"false\"", workers.clone().map(|worker| &worker.not_durable));
        text.histogram("durable=\"true\"", workers.map(|worker| &worker.durable));
        text.number("colors_connections", server.connections());
        text.number("colors_connections_max", server.limits().connections_max);
        text.number("colors_requests_waiting", self.waits.count());
        text.family("colors_connections_closed_total");
        for reason in Closing::ALL {
            let count = metrics.sum(|worker| worker.closed(reason));
            text.sample(&format!("{{reason=\"{}\"}}", closing_label(reason)), count);
        }
        text.number("colors_workers", metrics.workers.len());
        let (colors, bytes) = self.list.size();
        text.number("colors_colors", colors);
        text.number("colors_list_bytes", bytes);
        let no_saves = StorageMetrics::default();
        let saves = self.storage.as_ref().map_or(&no_saves, |status| &status.metrics);
        let saved: u64 = saves.durations.buckets.iter().map(Counter::get).sum();
        text.number("colors_saves_total", saved);
        text.number("colors_save_failures_total", saves.failures.get());
        text.family("colors_save_duration_seconds");
        text.histogram("", iter::once(&saves.durations));
        let followed = self.followed.as_deref();
        let answered = followed.and_then(FollowStatus::answered).map(seconds_since_1970);
        text.optional("colors_followed_answered_timestamp_seconds", answered);
        let is_up = followed.map(|followed| u8::from(followed.fault().is_none()));
        text.optional("colors_followed_up", is_up);
        let (dropped, warnings) = logging::counts();
        text.number("colors_log_lines_dropped_total", dropped);
        text.number("colors_log_warnings_total", warnings);
        text.family("colors_build_info");
        text.sample(concat!("{version=\"", env!("BUILD_VERSION"), "\"}"), 1);
        text.number("process_start_time_seconds", seconds_since_1970(metrics.started));
        // Where there is no proc(5), as in an empty root directory, its numbers are left out. The
        // number of descriptors is always left out: counting thousands would take milliseconds of a
        // worker.
        text.optional("process_cpu_seconds_total", processor_seconds());
        text.optional("process_resident_memory_bytes", resident_bytes());
        Response {
            media_type: MediaType::Metrics,
            ..Response::new(StatusCode(200), Content::Own(text.text.into_bytes()))
        }
    }
}

fn seconds_since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The processor time of the process in seconds, in user and in kernel mode.
fn processor_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // proc_pid_stat(5): utime and stime are fields 14 and 15, in ticks of 10 ms. Field 2, the name,
    // is in parentheses and may have spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(2);
    Some(times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0)
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Metrics as text: families, each with its samples.
struct Exposition {
    text: String,
    /// The name of the family that was begun last.
    family: &'static str,
}

impl Exposition {
    /// Begins one of [`FAMILIES`].
    fn family(&mut self, name: &'static str) {
        let rest = FAMILIES.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let (kind, help) = rest.and_then(|rest| rest.split_once(' ')).expect("it is listed");
        self.text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self.family = name;
    }

    fn sample(&mut self, labels: &str, value: impl Display) {
        self.text += &format!("{}{labels} {value}\n", self.family);
    }

    /// Adds a family with one sample.
    fn number(&mut self, name: &'static str, value: impl Display) {
        self.family(name);
        self.sample("", value);
    }

    fn optional(&mut self, name: &'static str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    /// Adds the samples of a histogram that is the sum of `parts`. Prometheus wants each bucket to
    /// include those before it; in a [`Histogram`] it does not.
    fn histogram<'a>(&mut self, label: &str, parts: impl Iterator<Item = &'a Histogram> + Clone) {
        let (separator, labels) =
            if label.is_empty() { ("", String::new()) } else { (",", format!("{{{label}}}")) };
        let mut count = 0;
        for bucket in 0..=BOUNDS {
            count += parts.clone().map(|part| part.buckets[bucket].get()).sum::<u64>();
            let bound = match bucket {
                BOUNDS => "+Inf".to_owned(),
                _ => ((FIRST_BOUND << bucket) as f64 / 1e9).to_string(),
            };
            self.sample(&format!("_bucket{{{label}{separator}le=\"{bound}\"}}"), count);
        }
        let nanoseconds: u64 = parts.map(|part| part.nanoseconds.get()).sum();
        self.sample(&format!("_sum{labels}"), nanoseconds as f64 / 1e9);
        self.sample(&format!("_count{labels}"), count);
    }
}

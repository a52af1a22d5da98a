//! Looks up the names of other servers, on one thread.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The thread that looks up names, once one was asked for.
static LOOKUPS: Lookups = Lookups::new(|name| Ok(name.to_socket_addrs()?.collect()));

/// Most addresses of a name that are tried: [`ResolvedSocketAddrs`] has room for no more.
const ADDRESSES_MAX: usize = 16;

/// Most questions that wait while a name is looked up. A start asks for all members of etcd at
/// once; otherwise the writer and the watch ask, or the follower.
const QUESTIONS_MAX: usize = 16;

/// How long a look-up may take if the addresses are known from before. /etc/hosts and a DNS in
/// reach take less.
const KNOWN_TIME: Duration = Duration::from_millis(100);

type Addresses = io::Result<Vec<SocketAddr>>;

/// Looks up names on a thread, since getaddrinfo(3) takes no deadline: without a DNS that answers,
/// it takes longer than anybody waits here. It is one thread, whatever is asked: a thread for each
/// question, as ureq has it, would not end for as long, and ureq panics if the system refuses one.
#[derive(Debug)]
struct Lookups {
    thread: Mutex<Option<SyncSender<Question>>>,
    look_up: fn(&str) -> Addresses,
    /// What was found last. The names are those of the options.
    known: Mutex<BTreeMap<String, Vec<SocketAddr>>>,
}

struct Question {
    /// HOST:PORT.
    name: String,
    asked: Instant,
    /// How long the answer is waited for.
    time: Duration,
    answer: SyncSender<Addresses>,
}

impl Lookups {
    const fn new(look_up: fn(&str) -> Addresses) -> Self {
        Self { thread: Mutex::new(None), look_up, known: Mutex::new(BTreeMap::new()) }
    }

    /// The addresses of a name; those that were found last if they are not found now. ureq asks for
    /// each request, so without these a DNS that fails would end the use of open connections.
    fn find(&self, name: String, mut timeout: NextTimeout) -> Result<Vec<SocketAddr>, Error> {
        let known = lock(&self.known).get(&name).cloned();
        if known.is_some() {
            timeout.after = timeout.after.min(KNOWN_TIME.into());
        }
        match (self.ask(name.clone(), timeout), known) {
            (Ok(found), _) => {
                lock(&self.known).insert(name, found.clone());
                Ok(found)
            }
            (Err(_), Some(known)) => Ok(known),
            (Err(error), None) => Err(error),
        }
    }

    fn ask(&self, name: String, timeout: NextTimeout) -> Result<Vec<SocketAddr>, Error> {
        let (answer, answered) = sync_channel(1);
        let time = *timeout.after;
        let question = Question { name, asked: Instant::now(), time, answer };
        // Fails if the thread still looks up what was asked long ago, and others wait for that.
        let asked = self.thread()?.try_send(question);
        asked.map_err(|_| Error::Timeout(timeout.reason))?;
        let addresses = answered.recv_timeout(time).map_err(|_| Error::Timeout(timeout.reason))?;
        Ok(addresses?)
    }

    /// Starts the thread if there is none. Fails if the system refuses it.
    fn thread(&self) -> Result<SyncSender<Question>, Error> {
        let mut thread = lock(&self.thread);
        if let Some(thread) = &*thread {
            return Ok(thread.clone());
        }
        let (sender, questions) = sync_channel::<Question>(QUESTIONS_MAX);
        let look_up = self.look_up;
        let run = move || {
            // Who has asked long ago waits no more.
            for question in questions.iter().filter(|it| it.asked.elapsed() < it.time) {
                // Fails if the time has passed meanwhile.
                let _ = question.answer.try_send(look_up(&question.name));
            }
        };
        let started = thread::Builder::new().name("resolver".to_owned()).spawn(run);
        started.map_err(|_| {
            let reason = "the system refuses a thread (raise the limit of processes: ulimit -u, \
                          TasksMax=)";
            Error::Other(reason.into())
        })?;
        Ok(thread.insert(sender).clone())
    }
}

/// Finds hosts. An address needs no search, and so no thread.
#[derive(Debug)]
pub(crate) struct HostResolver;

impl Resolver for HostResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let name = uri.scheme().zip(uri.authority());
        let name = name.and_then(|(scheme, host)| DefaultResolver::host_and_port(scheme, host));
        let name = name.ok_or(Error::HostNotFound)?;
        let found = match name.parse() {
            Ok(address) => vec![address],
            Err(_) => LOOKUPS.find(name, timeout)?,
        };
        let mut addresses = self.empty();
        found.into_iter().take(ADDRESSES_MAX).for_each(|address| addresses.push(address));
        if addresses.is_empty() { Err(Error::HostNotFound) } else { Ok(addresses) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use ureq::Timeout::Resolve;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn wait(after: Duration) -> NextTimeout {
        NextTimeout { after: after.into(), reason: Resolve, ..NextTimeout::default() }
    }

    #[test]
    fn while_a_look_up_takes_long_others_fail_in_time_and_leave_nothing_behind() {
        static DNS: Mutex<()> = Mutex::new(());
        static LOOK_UPS: AtomicUsize = AtomicUsize::new(0);
        static LOOKUPS: Lookups = Lookups::new(|name| {
            LOOK_UPS.fetch_add(1, SeqCst);
            drop(DNS.lock());
            Ok(vec![name.replace("host", "192.0.2.1").parse().unwrap()])
        });
        let dead = DNS.lock().unwrap();
        let ask_in_vain = || {
            let result = LOOKUPS.ask("host:1".to_owned(), wait(Duration::from_millis(1)));
            assert!(matches!(result, Err(Error::Timeout(Resolve))), "{result:?}");
        };
        while LOOK_UPS.load(SeqCst) == 0 {
            ask_in_vain();
        }
        (0..100).for_each(|_| ask_in_vain());
        drop(dead);
        // There is room for a question once the thread has dropped the old ones.
        let begun = Instant::now();
        let addresses = loop {
            match LOOKUPS.find("host:2".to_owned(), wait(MINUTE)) {
                Ok(addresses) => break addresses,
                Err(_) => assert!(begun.elapsed() < MINUTE),
            }
        };
        assert_eq!(addresses, ["192.0.2.1:2".parse().unwrap()]);
        assert_eq!(LOOK_UPS.load(SeqCst), 2);
        // What was found once is used, whatever becomes of DNS.
        let _dead = DNS.lock().unwrap();
        for _ in 0..3 {
            let known = LOOKUPS.find("host:2".to_owned(), wait(Duration::from_millis(1)));
            assert_eq!(known.unwrap(), addresses);
        }
    }
}

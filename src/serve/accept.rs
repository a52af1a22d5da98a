//! The main thread while the service runs: has connections accepted, takes signals, reads tokens
//! again, and tells the service manager that all is well.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use bounded_http::Acceptor;

use super::{Handler, Listener};
use crate::service::Service;
use crate::service_manager::{self, Watchdog};
use crate::signals::Signals;

/// Accepts connections until a signal to stop. At a signal to reload, reads the tokens again.
pub(crate) fn accept(
    acceptor: &Acceptor<Listener>,
    handler: &Handler,
    signals: &Signals,
) -> io::Result<()> {
    let mut watchdog = Watchdog::from_env(Instant::now());
    service_manager::ready();
    let mut others = vec![signals.stop.as_fd()];
    others.extend(signals.reload.as_ref().map(AsFd::as_fd));
    loop {
        let ready = acceptor.accept(&others, watchdog.poll_timeout(Instant::now()))?;
        if let Some(reload) = &signals.reload
            && ready[1]
        {
            // One reload is enough for several signals. The read fails if there is nothing to read.
            let _ = rustix::io::read(reload, &mut [0; 64]);
            reload_tokens(&handler.service);
        }
        if ready[0] {
            return Ok(());
        }
        let status = handler.store.status();
        let save_time = status.map(|status| status.elapsed()).unwrap_or_default();
        if watchdog.tick(Instant::now(), save_time, || handler.misses_one()) {
            handler.ping();
        }
    }
}

fn reload_tokens(service: &Service) {
    let Some(tokens) = &service.tokens else { return };
    match tokens.load() {
        Ok(()) => {
            tokens.log();
            // The token of a request that waits may not be valid any more.
            service.waits.mark_all();
        }
        Err(error) => log::error!(
            "cannot use the token file {}: {error}; the previous tokens stay",
            tokens.file().display()
        ),
    }
}

/// Ends the connections, after the requests that have begun are answered. Waits for that no longer
/// than until the deadline: what is still open then ends with the process.
pub(crate) fn stop(mut acceptor: Acceptor<Listener>, deadline: Instant) {
    let begun = Instant::now();
    service_manager::stopping();
    acceptor.listeners_mut().iter_mut().for_each(Listener::unlink);
    let connections = acceptor.stop(deadline);
    if connections > 0 {
        let seconds = begun.elapsed().as_secs_f32();
        log::warn!(
            "connections closed because they were still open {seconds:.0} s after the signal: \
             {connections}"
        );
    }
}

//! Messages to the service manager (sd_notify(3)); without one, nothing is sent.

use sd_notify::NotifyState;

/// The service is ready, and changes are saved.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("ok")]);
}

pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// What `systemctl status` shows: `ok`, or what is wrong. Whoever learns that this has changed
/// sends it.
pub(crate) fn status(text: &str) {
    // each line would be a message of its own
    tell(&[NotifyState::Status(&text.replace('\n', " "))]);
}

pub(crate) fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        let states: Vec<_> = states.iter().map(ToString::to_string).collect();
        log::warn!("cannot tell the service manager {}: NOTIFY_SOCKET: {error}", states.join(", "));
    }
}

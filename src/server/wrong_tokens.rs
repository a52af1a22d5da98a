//! Counts the wrong tokens that come in a row from one address, so that somebody who tries tokens out is seen in the log. Refuses nobody.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use super::client::Client;
use crate::logging;

/// Wrong tokens in a row that are worth a log line; another line follows whenever the number has doubled.
const LOGGED_FROM: u32 = 5;

/// The address of the last wrong token, and how many in a row had that; `None` are the clients of unix sockets.
#[derive(Debug, Default)]
pub(super) struct WrongTokens(Mutex<(Option<IpAddr>, u32)>);

impl WrongTokens {
    pub(super) fn note_wrong(&self, client: Client) {
        let count = self.count(client.address());
        if count.is_multiple_of(LOGGED_FROM) && (count / LOGGED_FROM).is_power_of_two() {
            let name = client.address().map_or_else(|| client.to_string(), |address| address.to_string());
            logging::client_warning(format_args!("{count} wrong tokens in a row from {name}"));
        }
    }

    /// Notes that a token was right: wrong ones of this client before it were mistakes.
    pub(super) fn note_right(&self, client: impl FnOnce() -> Client) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.1 > 0 && last.0 == client().address() {
            last.1 = 0;
        }
    }

    fn count(&self, address: Option<IpAddr>) -> u32 {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = if last.0 == address { last.1.saturating_add(1) } else { 1 };
        *last = (address, count);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_one_address_in_a_row_are_counted() {
        let wrong = WrongTokens::default();
        let address = |last| Some(IpAddr::from([192, 0, 2, last]));
        let counts = [address(1), address(1), address(2), address(1), None, None].map(|address| wrong.count(address));
        assert_eq!(counts, [1, 2, 1, 1, 1, 2]);
    }
}

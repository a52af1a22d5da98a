//! Counts the wrong tokens that come in a row from one address, so that somebody who tries tokens out is seen in the log. Refuses nobody.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::client::Client;
use crate::http::{Challenge, Request, Response};

/// Wrong tokens in a row from one address that are worth a log line; another line follows whenever the number has doubled.
const LOGGED_FROM: u32 = 5;

/// Addresses that are counted at a time; when there are more, all counts start again. 1,024 take some 50 KiB.
const ADDRESSES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct WrongTokens {
    /// Whether there is any count: without one, a right token costs no look at the client's address.
    has_counts: AtomicBool,
    /// By address; `None` are the clients of unix sockets.
    counts: Mutex<HashMap<Option<IpAddr>, u32>>,
}

impl WrongTokens {
    /// Counts the token of a request by its response; gives a remark for the log when there were several wrong ones in a row.
    pub(super) fn note(&self, request: &Request, response: &Response, client: impl FnOnce() -> Client) -> Option<String> {
        match response.challenge {
            Some(Challenge::InvalidToken) => {
                let client = client();
                let count = self.count(client.address());
                let name = client.address().map_or_else(|| client.to_string(), |address| address.to_string());
                is_logged(count).then(|| format!("{count} wrong tokens in a row from {name}"))
            }
            // where tokens are needed, no change is made without a right one
            None if self.has_counts.load(Relaxed) && !request.is_safe() && (200..300).contains(&response.status.0) => {
                self.forget(client().address());
                None
            }
            _ => None,
        }
    }

    fn count(&self, address: Option<IpAddr>) -> u32 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= ADDRESSES_MAX && !counts.contains_key(&address) {
            counts.clear();
        }
        let count = counts.entry(address).or_default();
        *count = count.saturating_add(1);
        self.has_counts.store(true, Relaxed);
        *count
    }

    fn forget(&self, address: Option<IpAddr>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.remove(&address);
        self.has_counts.store(!counts.is_empty(), Relaxed);
    }
}

/// Whether this many wrong tokens in a row are logged: 5, 10, 20, 40 and so on.
fn is_logged(count: u32) -> bool {
    count.is_multiple_of(LOGGED_FROM) && (count / LOGGED_FROM).is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_get_rarer_as_the_number_grows() {
        assert_eq!((0..100).filter(|count| is_logged(*count)).collect::<Vec<_>>(), [5, 10, 20, 40, 80]);
    }

    #[test]
    fn each_address_is_counted_by_itself_and_only_so_many_are() {
        let wrong = WrongTokens::default();
        let address = |number: usize| Some(IpAddr::from(u128::try_from(number).unwrap().to_be_bytes()));
        for number in 0..ADDRESSES_MAX {
            assert_eq!(wrong.count(address(number)), 1);
        }
        assert_eq!((wrong.count(address(7)), wrong.count(address(7))), (2, 3));
        assert_eq!((wrong.count(None), wrong.count(address(7))), (1, 1));
        assert_eq!(wrong.counts.lock().unwrap().len(), 2);
        wrong.forget(None);
        assert!(wrong.has_counts.load(Relaxed));
        wrong.forget(address(7));
        assert!(!wrong.has_counts.load(Relaxed));
    }
}

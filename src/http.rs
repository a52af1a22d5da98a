//! Requests and responses as the service sees them, in the terms of RFC 9110, and times as text.

mod fields;
mod request;
mod response;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[cfg(test)]
pub(crate) use request::TestRequest;
pub(crate) use request::{Credentials, METHODS, Request, RequestFields, is_safe};
pub(crate) use response::{Challenge, CommonFields, MediaType, Response};

/// A time for clients and operators: in UTC and whole seconds (RFC 3339), as in
/// `1994-11-06T08:49:37Z`. A wrong clock may be beyond the year 9999, but the format has four
/// digits for a year: such a time becomes the end of 9999.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let end_of_9999 = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let time = OffsetDateTime::from(time.min(end_of_9999)).truncate_to_second();
    time.format(&Rfc3339).expect("its year has four digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_utc_in_seconds_and_has_four_digits_for_the_year() {
        let text = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs_f64(seconds));
        assert_eq!(text(784_111_777.9), "1994-11-06T08:49:37Z");
        assert_eq!(text(253_402_300_800.), "9999-12-31T23:59:59Z");
    }
}

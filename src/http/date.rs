//! Dates as text. That of the Date field (RFC 9110 §5.6.7) is formatted once per second and thread.

use std::cell::RefCell;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

thread_local! {
    /// The second that was formatted last, and its text.
    static LAST: RefCell<(Range<SystemTime>, String)> = const { RefCell::new((UNIX_EPOCH..UNIX_EPOCH, String::new())) };
}

/// Calls `use_it` with the current time as an IMF-fixdate.
pub(super) fn now<T>(use_it: impl FnOnce(&str) -> T) -> T {
    let now = SystemTime::now();
    LAST.with_borrow_mut(|(last, text)| {
        // two comparisons of times take a quarter of the instructions of one difference
        if !last.contains(&now) {
            // httpdate panics on times before 1970
            let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            let second = UNIX_EPOCH + Duration::from_secs(since.as_secs());
            *last = second..second + Duration::from_secs(1);
            *text = httpdate::fmt_http_date(second);
        }
        use_it(text)
    })
}

/// A time in UTC and whole seconds, as in `1994-11-06T08:49:37Z`.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time).truncate_to_second();
    time.format(&Rfc3339).expect("a time of this system has a year of four digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_current_time() {
        let before = SystemTime::now();
        let told = now(|text| httpdate::parse_http_date(text).unwrap());
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((since(before)..=since(SystemTime::now())).contains(&since(told)));
        assert_eq!(now(str::len), "Sun, 06 Nov 1994 08:49:37 GMT".len());
    }

    #[test]
    fn a_time_of_json_is_utc_in_seconds() {
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(784_111_777_900)), "1994-11-06T08:49:37Z");
    }
}

//! The Date field: the current time as an IMF-fixdate (RFC 9110 §5.6.7), formatted once per second and thread.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

thread_local! {
    /// The second formatted last, since 1970, and its text.
    static LAST: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
}

/// Calls `use_it` with the current time.
pub(super) fn now<T>(use_it: impl FnOnce(&str) -> T) -> T {
    // before 1970 it is 1970: httpdate panics on earlier times
    let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|(last, text)| {
        if *last != second {
            *last = second;
            *text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
        use_it(text)
    })
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
}

//! The value of the field Date.

use std::time::{Duration, Instant};

use time::OffsetDateTime;
use time::macros::format_description;

/// The current time as an IMF-fixdate (RFC 9110 §5.6.7). The clock is read, and the text made, once
/// per second.
#[derive(Debug, Default)]
pub(crate) struct Date {
    text: String,
    /// When the second is over.
    end: Option<Instant>,
}

impl Date {
    pub(crate) fn at(&mut self, now: Instant) -> &str {
        if self.end.is_none_or(|end| now >= end) {
            let time = OffsetDateTime::now_utc();
            let imf_fixdate = format_description!(
                "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
            );
            self.text = time.format(imf_fixdate).expect("it has all that the format names");
            // the rest of the second
            self.end = Some(now + Duration::new(0, 1_000_000_000 - time.nanosecond()));
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_date_is_of_the_second_until_that_is_over() {
        let mut date = Date::default();
        let (before, now) = (SystemTime::now(), Instant::now());
        let told = httpdate::parse_http_date(date.at(now)).unwrap();
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((since(before)..=since(SystemTime::now())).contains(&since(told)));
        let end = date.end.unwrap();
        assert!(now < end && end <= now + Duration::from_secs(1));
        date.text = "a text of this second".to_owned();
        assert_eq!(date.at(end - Duration::from_nanos(1)), "a text of this second");
        assert_eq!(date.at(end).len(), "Sun, 06 Nov 1994 08:49:37 GMT".len());
    }
}

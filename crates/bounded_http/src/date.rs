//! The field Date.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::macros::format_description;

/// A time in UTC. A wrong clock may be beyond the year 9999, but the formats have four digits for a
/// year: such a time becomes the end of 9999.
fn utc(time: SystemTime) -> OffsetDateTime {
    let end_of_9999 = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    time.min(end_of_9999).into()
}

/// An IMF-fixdate (RFC 9110 §5.6.7).
pub(super) type ImfFixdate = [u8; 29];

/// The current time as an IMF-fixdate. The clock is read and the text made about once per second,
/// not for each response.
#[derive(Debug, Default)]
pub(super) struct Date {
    text: ImfFixdate,
    /// When `text` is out of date. `None` if there is no text yet.
    end: Option<Instant>,
}

impl Date {
    /// Brings the text up to date.
    pub(super) fn set(&mut self, now: Instant) {
        if self.end.is_none_or(|end| now >= end) {
            let time = utc(SystemTime::now());
            let imf_fixdate = format_description!(
                "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
            );
            let text = time.format(imf_fixdate).expect("it has all that the format names");
            self.text.copy_from_slice(text.as_bytes());
            // The text holds for the rest of the second.
            self.end = Some(now + Duration::new(0, 1_000_000_000 - time.nanosecond()));
        }
    }

    pub(super) fn text(&self) -> &ImfFixdate {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_year_has_four_digits_whatever_the_clock_says() {
        let year = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds)).year();
        assert_eq!([year(253_402_300_799), year(253_402_300_800)], [9999, 9999]);
    }

    #[test]
    fn a_date_is_of_the_second_until_that_is_over() {
        let mut date = Date::default();
        let before = SystemTime::now();
        let now = Instant::now();
        let at = |date: &mut Date, now| {
            date.set(now);
            String::from_utf8(date.text().to_vec()).unwrap()
        };
        let told = httpdate::parse_http_date(&at(&mut date, now)).unwrap();
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((since(before)..=since(SystemTime::now())).contains(&since(told)));
        let end = date.end.unwrap();
        assert!(now < end && end <= now + Duration::from_secs(1));
        let known = "Sun, 06 Nov 1994 08:49:37 GMT";
        date.text.copy_from_slice(known.as_bytes());
        assert_eq!(at(&mut date, end - Duration::from_nanos(1)), known);
        assert_ne!(at(&mut date, end), known);
    }
}

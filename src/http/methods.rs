//! The methods that a resource has.

use std::fmt;

use tiny_http::Method;

/// Methods in the order in which Allow lists them (RFC 9110 §10.2.1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Methods(pub(crate) &'static [Method]);

impl Methods {
    pub(crate) fn contain(self, method: &Method) -> bool {
        self.0.contains(method)
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, method)| {
            write!(f, "{}{method}", if index == 0 { "" } else { ", " })
        })
    }
}

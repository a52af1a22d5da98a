//! Via (RFC 9110 §7.6.3), by which services that follow one another recognize a loop. Does not
//! decide what is one.

use std::fmt::Display;

/// What the pseudonym of a service begins with. A random id of the process comes after it.
const SERVICE: &str = "colors-";

/// The ids of the services in a value of Via, in its order. Leaves out proxies.
pub(crate) fn service_ids(via: &str) -> impl Iterator<Item = &str> {
    via.split(',').filter_map(|member| {
        // The protocol comes first.
        member.split_ascii_whitespace().nth(1)?.strip_prefix(SERVICE)
    })
}

/// The value of Via with these services.
pub(crate) fn via_value(ids: &[impl Display]) -> String {
    let members: Vec<_> = ids.iter().map(|id| format!("1.1 {SERVICE}{id}")).collect();
    members.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_told_from_proxies() {
        let value = format!(
            "1.1 Caddy, {},1.0 colors (a proxy) ,HTTP/1.1 colors-c,",
            via_value(&["a", "b"])
        );
        assert_eq!(service_ids(&value).collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}

//! The colors that lists are made of. Knows nothing of the servers that hold them.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// The product's own seed: the 148 named colors of CSS.
const SEED: &str = include_str!("../../seed/colors.json");

/// One color.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Color {
    /// Identifies it in paths; none needs an escape there.
    pub(crate) name: String,
    /// For example `#112233`.
    pub(crate) value: String,
}

/// The color at this place of every list: the seed's first, then any number of made-up ones.
pub(crate) fn color(place: usize) -> Color {
    static CSS: LazyLock<Vec<Color>> = LazyLock::new(|| serde_json::from_str(SEED).expect("the seed of the product is a file of colors"));
    let made_up = || Color { name: format!("color-{place:07}"), value: format!("#{:06x}", place % (1 << 24)) };
    CSS.get(place).cloned().unwrap_or_else(made_up)
}

/// A list of this many colors.
pub(crate) fn list(count: usize) -> Vec<Color> {
    (0..count).map(color).collect()
}

/// A list as a seed file.
pub(crate) fn seed(colors: &[Color]) -> String {
    serde_json::to_string(colors).expect("strings always serialize")
}

/// A list as the API's envelope.
pub(crate) fn envelope(colors: &[Color]) -> String {
    format!(r#"{{"data":{}}}"#, seed(colors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_every_name_once() {
        let mut names: Vec<String> = list(1000).into_iter().map(|color| color.name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 1000);
    }
}

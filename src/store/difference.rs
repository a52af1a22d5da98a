//! Finds the edits that lead from one list to another. Knows no locks and no files.

use super::Color;
use super::color_list::{ColorList, Edit};

/// The edits that lead from `old` to a list with the colors of `new`. `None` if the whole list is
/// better replaced, or if no id is left for a color to append.
///
/// Walks both lists in order, so that duplicates of a name are colors like any other. If a color of
/// `old` has the name of the next color of `new`, it stays or gets the new value. Otherwise it is
/// removed. What is left of `new` is appended. There is no edit that inserts: if `new` has a
/// further color in the middle, all colors of `old` behind that place are removed, and appended
/// again.
pub(super) fn edits_between(old: &ColorList, new: &ColorList) -> Option<Vec<Edit>> {
    // To replace the list writes each of its colors. An edit takes as much memory as several short
    // colors, with the nodes of the list that it copies. So a short list is not worth an edit for
    // each color of a long one that it replaces.
    let edits_max = new.len().min(1024.max(new.len() / 32));
    let mut wanted = new.iter().peekable();
    let mut edits = Vec::new();
    for (id, color) in old.iter() {
        let is_same =
            |(_, wanted): &(i64, &Color)| *wanted == color || wanted.name() == color.name();
        match wanted.next_if(is_same) {
            Some((_, wanted)) if wanted == color => {}
            Some((_, wanted)) => edits.push(Edit::Update(id, wanted.clone())),
            None => edits.push(Edit::Remove(id, color.clone())),
        }
        if edits.len() > edits_max {
            return None;
        }
    }
    let mut next_id = old.next_id();
    for (_, color) in wanted {
        let id = next_id?;
        edits.push(Edit::Append(id, color.clone()));
        next_id = id.checked_add(1);
        if edits.len() > edits_max {
            return None;
        }
    }
    Some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and values; the model of a list.
    type Model = Vec<(&'static str, &'static str)>;

    fn colors(model: &Model) -> ColorList {
        model.iter().map(|(name, value)| Color::new(name, value)).collect()
    }

    /// The edits from a list to another. Checks that they lead there, and keep the index of names.
    #[track_caller]
    fn edits(old: &ColorList, model: &Model) -> Option<Vec<Edit>> {
        let new = colors(model);
        let edits = edits_between(old, &new)?;
        let mut edited = old.clone();
        edits.iter().for_each(|edit| drop(edited.apply(edit)));
        assert_eq!(edited, new, "{model:?}");
        assert_eq!(edited.envelope().bytes(), new.envelope().bytes());
        for (name, _) in model {
            let values = |colors: &ColorList| {
                colors.named(name).map(|(_, color)| color.clone()).collect::<Vec<_>>()
            };
            assert_eq!(values(&edited), values(&new), "{name}");
        }
        Some(edits)
    }

    #[test]
    fn a_color_that_changes_is_one_edit() {
        let list = vec![("a", "1"), ("b", "1"), ("a", "2"), ("c", "1")];
        let old = colors(&list);
        assert_eq!(edits(&old, &list), Some(vec![]));
        for (place, id) in (0..list.len()).zip(1..) {
            let mut new = list.clone();
            new[place].1 = "9";
            let replaced = Color::new(new[place].0, "9");
            assert_eq!(edits(&old, &new), Some(vec![Edit::Update(id, replaced)]));
            new.remove(place);
            let removed = Color::new(list[place].0, list[place].1);
            assert_eq!(edits(&old, &new), Some(vec![Edit::Remove(id, removed)]));
        }
        for name in ["a", "c", "d"] {
            let appended = Color::new(name, "1");
            let new = [&list[..], &[(name, "1")]].concat();
            assert_eq!(edits(&old, &new), Some(vec![Edit::Append(5, appended)]));
        }
    }

    #[test]
    fn a_list_that_edits_do_not_lead_to_is_replaced() {
        let old = colors(&vec![("a", "1"), ("b", "1"), ("c", "1")]);
        for new in [
            vec![("d", "1"), ("a", "1"), ("b", "1"), ("c", "1")],
            vec![("c", "1"), ("b", "1"), ("a", "1")],
            vec![("d", "1"), ("e", "1"), ("f", "1")],
        ] {
            assert_eq!(edits(&old, &new), None, "{new:?}");
        }
        // Another program has used the highest possible id.
        let full = ColorList::from_iter([(i64::MAX, Color::new("a", "1"))]);
        assert_eq!(edits(&full, &vec![("a", "1"), ("b", "1")]), None);
        let replaced = Some(vec![Edit::Update(i64::MAX, Color::new("a", "2"))]);
        assert_eq!(edits(&full, &vec![("a", "2")]), replaced);
    }

    /// Compares edits with operations on a `Vec`. The lists have few names and values, and so many
    /// duplicates, also far from each other.
    #[test]
    fn edits_lead_from_any_list_to_any_other() {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut found, mut short) = (0, 0);
        for _ in 0..20_000 {
            let color = |random: &mut fastrand::Rng| {
                let name = *random.choice(&["a", "b", "c", "d\"", ""]).unwrap();
                (name, *random.choice(&["1", "2"]).unwrap())
            };
            let model: Model = (0..random.usize(..9)).map(|_| color(&mut random)).collect();
            let mut old = colors(&model);
            if random.bool() {
                // Ids that other programs have chosen.
                let ids = (-3..).step_by(random.usize(1..5));
                old = ids.zip(old.iter().map(|(_, color)| color.clone())).collect();
            }
            let mut new = model.clone();
            let operations = random.usize(..4);
            for _ in 0..operations {
                match (random.u8(..4), random.usize(..=new.len())) {
                    (0, place) if place < new.len() => drop(new.remove(place)),
                    (1, place) if place < new.len() => new[place].1 = "3",
                    (2, place) if random.u8(..4) == 0 => new.insert(place, color(&mut random)),
                    _ => new.push(color(&mut random)),
                }
            }
            if let Some(edits) = edits(&old, &new) {
                found += 1;
                short += usize::from(edits.len() <= operations);
            }
        }
        assert!(found > 15_000 && short > 12_000, "{found} {short}");
    }
}

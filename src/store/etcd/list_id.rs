//! Which list it is. A list has a random id at `KEY/id`, from whoever makes it, or from the first
//! start that finds none. Every transaction compares it: two etcds of which each has a list at KEY
//! may have the same cluster id, and the same numbers and revisions. So may one that was emptied
//! and filled again. (One that was restored from a snapshot has the same list, with another
//! history: [`Position`](super::position::Position) compares the last entry.)

use super::format::Keys;
use super::gateway::{NO_LIST, OTHER_LIST, Txn, TxnResponse, compare_value, get};

impl Keys {
    /// A transaction on the list with this id. If a comparison does not hold, the answer has the
    /// id that is there in place 0, and what `failure` has found behind it.
    pub(super) fn txn(
        &self,
        mut compare: Vec<serde_json::Value>,
        success: Vec<serde_json::Value>,
        mut failure: Vec<serde_json::Value>,
    ) -> Txn {
        compare.extend(self.id.as_ref().map(|id| compare_value(&self.id_key(), "EQUAL", id)));
        failure.insert(0, get(&self.id_key()));
        Txn { compare, success, failure }
    }

    /// The reason not to take this answer, if a member does not have the list with this id.
    pub(super) fn refuse(&self, response: &TxnResponse) -> Option<&'static str> {
        let id = self.id.as_ref()?;
        match response.found(0).first() {
            Some(there) if there.value == *id => None,
            Some(_) => Some(OTHER_LIST),
            None => Some(NO_LIST),
        }
    }
}

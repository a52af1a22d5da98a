//! Ids that no other process has. Pauses that are spread at random need less: fastrand begins with
//! the time.

use rustix::rand::{GetRandomFlags, getrandom};

/// 64 random bits from the kernel, in hexadecimal.
pub(crate) fn id() -> String {
    let mut bytes = [0; 8];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    // getrandom(2): it fails only before the kernel has collected enough, for which it waits.
    assert_eq!(filled, Ok(bytes.len()), "the kernel has random bytes");
    format!("{:016x}", u64::from_ne_bytes(bytes))
}

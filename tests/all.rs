//! Tests of the real binary. One test program: it is linked once, and its tests run in parallel.

#![allow(clippy::unwrap_used, reason = "a test's name says what it is about, and a panic fails it")]

mod browser;
mod common;
/// The service under attack: one test per attack. `flood` has what attacks are made of, and the
/// check that follows every one.
mod siege {
    mod attacks;
    mod flood;
}
mod wire;

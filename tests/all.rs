//! Tests of the real binary. One test program: it is linked once, and its tests run in parallel.

#![allow(clippy::unwrap_used, reason = "a test's name says what it is about, and a panic fails it")]

mod browser;
mod common;
mod siege;
mod wire;

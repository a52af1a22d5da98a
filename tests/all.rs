//! The service from outside: the real binary, in one program of tests, so that they run beside each other and are linked once.

#![allow(clippy::unwrap_used, reason = "a test's name says what it is about, and a panic fails it")]

mod browser;
mod common;
mod siege;
mod wire;

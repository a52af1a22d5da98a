//! The service under attack: one test per attack. `flood` has what attacks are made of, and the
//! check that follows every one.

mod attacks;
mod flood;

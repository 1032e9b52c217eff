//! Queries over tables that answer early: what a part of a table says about all of it ([`estimators`]), what people are shown of that ([`snapshot`]), when they have seen enough
//! ([`stopping`]), and the jobs that do it ([`online`]).

pub mod estimators;
pub mod kinds;
pub mod online;
pub mod snapshot;
pub mod stopping;

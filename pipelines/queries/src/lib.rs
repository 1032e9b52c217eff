//! Queries over tables that answer early. So far: what a part of a table says about all of it ([`estimators`]), what people are shown of that ([`snapshot`]), and when they have seen enough
//! ([`stopping`]).

pub mod estimators;
pub mod snapshot;
pub mod stopping;

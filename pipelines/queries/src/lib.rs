//! Queries over tables that answer early. So far: what a part of a table says about all of it ([`estimators`]).

pub mod estimators;

//! The store from outside: every test opens a real store on a real directory.

mod aligned;
mod basics;
mod deadlock;
mod faults;
mod flips;
mod hammer;
mod harness;
mod outside;
mod recovery;
mod second_names;
mod spilling;

//! The store from outside: every test opens a real store on a real directory.

mod basics;
mod harness;

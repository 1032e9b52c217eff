//! Functions in processes of their own: real processes that crash, hang, are killed, and do what others do.

#[path = "../common/mod.rs"]
mod common;

mod aligned;
mod functions;
mod harness;
mod limits;
mod losses;
mod memory;
mod printing;
mod same_results;

/// No test: what executor processes run. Nodes of these tests start this binary with this test's name.
#[test]
fn executor_process() {
    exobus_actors::isolation::enter();
    assert!(!exobus_actors::isolation::is_executor(), "an executor never comes back");
}

//! The contract of the bus, run by the in-process bus with streams in memory and in a file, and by the fault-injecting wrapper with no faults set.
#![cfg(feature = "contract")]

use exobus_bus::chaos::{Chaos, Faults};
use exobus_bus::contract::Fixture;
use exobus_bus::{Bus, InProcessOptions};

async fn in_process_fixture() -> Fixture {
    let bus = Bus::in_process();
    Fixture { a: bus.clone(), b: bus, guard: Box::new(()) }
}

async fn in_file_fixture() -> Fixture {
    let dir = tempfile::tempdir().expect("make a directory for the file");
    let bus = Bus::in_process_durable(InProcessOptions::default(), &dir.path().join("streams.redb")).await;
    let bus = bus.expect("make the file");
    Fixture { a: bus.clone(), b: bus, guard: Box::new(dir) }
}

async fn calm_chaos_fixture() -> Fixture {
    let bus = Bus::in_process();
    // One wrapper each, as two processes would have.
    let (a, b) = (Chaos::around(&bus, 1, Faults::default()), Chaos::around(&bus, 2, Faults::default()));
    Fixture { a: a.bus(), b: b.bus(), guard: Box::new((a, b)) }
}

exobus_bus::bus_contract!(in_process, crate::in_process_fixture);
exobus_bus::bus_contract!(in_file, crate::in_file_fixture);
exobus_bus::bus_contract!(calm_chaos, crate::calm_chaos_fixture);

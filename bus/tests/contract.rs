//! The contract of the bus, run by the in-process bus and by the fault-injecting wrapper with no faults set.
#![cfg(feature = "contract")]

use exobus_bus::Bus;
use exobus_bus::chaos::{Chaos, Faults};
use exobus_bus::contract::Fixture;

async fn in_process_fixture() -> Fixture {
    let bus = Bus::in_process();
    Fixture { a: bus.clone(), b: bus, guard: Box::new(()) }
}

async fn calm_chaos_fixture() -> Fixture {
    let bus = Bus::in_process();
    // One wrapper each, as two processes would have.
    let (a, b) = (Chaos::around(&bus, 1, Faults::default()), Chaos::around(&bus, 2, Faults::default()));
    Fixture { a: a.bus(), b: b.bus(), guard: Box::new((a, b)) }
}

exobus_bus::bus_contract!(in_process, crate::in_process_fixture);
exobus_bus::bus_contract!(calm_chaos, crate::calm_chaos_fixture);

//! The contract of the bus, run by a real nats-server, one server per clause.

exobus_bus::bus_contract!(nats, crate::harness::nats);

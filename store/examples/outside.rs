//! What memory beside the region costs: `outside [MIB] [ROUNDS]`.
//!
//! Grants so many MiB (default 1024) of a store of four thirds of that, whose memory was touched, and gives them back, round after round (default 5):
//! how long each takes, in milliseconds. In the odd rounds the region is made to want its memory back in between, so that those pay for all of it,
//! and the even ones find what was given back before. Good: even rounds take less than a millisecond.

use std::sync::Arc;

use exobus_store::{Clock, RealDisk, Store, StoreOptions, SystemClock};

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().map_or(default, |text| text.parse().expect("a number"));
    let mib = number(1024);
    let bytes = mib << 20;
    let rounds = number(5);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let options = StoreOptions { memory_bytes: (mib / 3 * 4 + 64) << 20, ..StoreOptions::default() };
    let store = Store::open(options, Arc::new(RealDisk::new()), clock.clone()).expect("open a store");
    let all = store.stats().budget_bytes - store.stats().reserve_bytes;
    let millis = |begun| (clock.now() - begun).as_secs_f64() * 1e3;
    for round in 1..=2 * rounds {
        let touched = clock.now();
        if round % 2 == 1 {
            drop(store.scratch(all).expect("all memory"));
        }
        let (touched, asked) = (millis(touched), clock.now());
        let grant = store.outside(bytes).expect("a grant");
        let (asked, ended) = (millis(asked), clock.now());
        drop(grant);
        let ended = millis(ended);
        println!("round {round}: back to the region {touched:.2} ms, granted {asked:.2} ms, given back {ended:.2} ms");
    }
}

//! One fuzzer for all targets: `EXOBUS_FUZZ_TARGET` says which. Build and run it by `cargo xtask fuzz`.
#![no_main]

use std::{env, path::Path, sync::OnceLock};

use exobus::fuzzing::{Target, find, seeds};
use libfuzzer_sys::fuzz_target;

fn target() -> &'static Target {
    static TARGET: OnceLock<&'static Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = env::var("EXOBUS_FUZZ_TARGET").unwrap_or_default();
        find(&name).unwrap_or_else(|| panic!("EXOBUS_FUZZ_TARGET names no target: {name:?}"))
    })
}

/// What the target reads when all is well is put where the fuzzer looks for inputs.
fn write_seeds() {
    let (Some(folder), Some(repository)) =
        (env::var_os("EXOBUS_FUZZ_SEEDS"), Path::new(env!("CARGO_MANIFEST_DIR")).parent())
    else {
        return;
    };
    let seeds = seeds(target().name, repository).expect("the seeds can be read");
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(Path::new(&folder).join(format!("seed-{number}")), seed).expect("the seeds can be written");
    }
}

fuzz_target!(init: { write_seeds() }, |bytes: &[u8]| (target().run)(bytes));

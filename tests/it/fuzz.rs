//! Every decoder over what was kept for it, over what it reads when all is well, and over mutations of both. How many:
//! `EXOBUS_FUZZ_RUNS` (100 000 in CI). A failure names the file with the input, which belongs into the corpus with the
//! mending.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use exobus::fuzzing::{Mutator, TARGETS, corpus, find, seeds};

/// What the ordinary run does: a second or less each.
const RUNS: u32 = 2_000;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn runs() -> u32 {
    std::env::var("EXOBUS_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS)
}

#[track_caller]
fn check(name: &str) {
    let target = find(name).unwrap();
    let run = |input: &[u8], whence: &str| {
        if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
            let path = std::env::temp_dir().join(format!("exobus-fuzz-{name}.input"));
            std::fs::write(&path, input).unwrap();
            panic!("{name} panicked on {whence}: {}", path.display());
        }
    };
    let mut inputs = seeds(name, repository()).unwrap();
    assert!(!inputs.is_empty(), "{name} has no seeds");
    for (path, input) in corpus(name, repository()).unwrap() {
        run(&input, &path.display().to_string());
        inputs.push(input);
    }
    for (number, input) in inputs.iter().enumerate() {
        run(input, &format!("seed {number}"));
    }
    let mut mutator = Mutator::new(
        name.bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)),
    );
    for number in 0..runs() / target.rare {
        run(&mutator.input(&inputs), &format!("mutation {number}"));
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_run() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

targets! {
    codec session_frame session sealed_message subject stream_record stream_rows stream_file
    scheduler host owner node merger results result_request spec membership answers post_item joblog executor
    transfer_server transfer_client transfer_directory
    spill_footer index_entry config units claim manifest table_layout table_part table_sums
    table_condition table_key table_aggregates table_json
}

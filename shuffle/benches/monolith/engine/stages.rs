//! What each stage took: seconds, and processor seconds of all threads together.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time, in this module alone")]

use std::time::Instant;

/// One stage, over.
#[derive(Debug, Clone)]
pub struct Stage {
    /// What it was.
    pub name: &'static str,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Processor seconds of this process outside the kernel.
    pub user_seconds: f64,
    /// Processor seconds inside the kernel, page faults for one.
    pub system_seconds: f64,
}

/// Measures stages that follow each other.
pub(super) struct Stages {
    began: Instant,
    before: (f64, f64),
    stages: Vec<Stage>,
}

impl Stages {
    /// The first stage begins.
    pub(super) fn start() -> Stages {
        Stages { began: Instant::now(), before: processor_seconds(), stages: Vec::new() }
    }

    /// The present stage is over, the next one begins.
    pub(super) fn end(&mut self, name: &'static str) {
        let (now, (user, system)) = (Instant::now(), processor_seconds());
        self.stages.push(Stage {
            name,
            seconds: (now - self.began).as_secs_f64(),
            user_seconds: user - self.before.0,
            system_seconds: system - self.before.1,
        });
        (self.began, self.before) = (now, (user, system));
    }

    pub(super) fn into_stages(self) -> Vec<Stage> {
        self.stages
    }
}

/// User and system time of this process, in seconds; zeros where the system does not tell.
fn processor_seconds() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in brackets may hold spaces; user and system time are the 12th and 13th field behind it, in ticks.
    let mut fields = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().skip(11);
    let mut seconds = || {
        let ticks = fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    };
    (seconds(), seconds())
}

//! Executors and computations that take as long as they are told, in virtual time.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::sleep;

use crate::futures::{Computation, Compute};
use crate::node_manager::{Executor, ExecutorLink, ExecutorParts, Work};
use crate::simulation::dice::Dice;

/// How often one that may start nothing looks whether it may.
const GATE_EVERY: Duration = Duration::from_millis(5);

/// Executors of a node, on the current `LocalSet`. Functions themselves run on threads, in no time.
pub(super) struct PacedExecutors {
    work: mpsc::UnboundedSender<Work>,
    count: usize,
}

impl PacedExecutors {
    /// Starts them; each attempt takes a time in this range of milliseconds.
    pub(super) fn start(parts: &ExecutorParts, takes_ms: Range<u64>, dice: Dice) -> Self {
        let (work, queue) = mpsc::unbounded_channel();
        let (queue, dice) = (Arc::new(tokio::sync::Mutex::new(queue)), Arc::new(Mutex::new(dice)));
        for index in 0..parts.count {
            let (executor, gate) = (Executor::new(index, parts), parts.gate.clone());
            let (queue, dice, takes_ms) = (queue.clone(), dice.clone(), takes_ms.clone());
            spawn_local(async move {
                let mut executor = executor;
                loop {
                    let next: Option<Work> = queue.lock().await.recv().await;
                    let Some(work) = next else { return };
                    while gate.is_closed() {
                        sleep(GATE_EVERY).await;
                    }
                    let Some(started) = executor.begin(&work) else { continue };
                    let takes = dice.lock().millis(takes_ms.clone());
                    sleep(takes).await;
                    let ran = spawn_blocking(move || {
                        executor.run(work, started);
                        executor
                    });
                    match ran.await {
                        Ok(same) => executor = same,
                        // The runtime ends.
                        Err(_) => return,
                    }
                }
            });
        }
        Self { work, count: parts.count }
    }
}

impl ExecutorLink for PacedExecutors {
    fn run(&self, work: Work) {
        // Its tasks are gone when the process is killed.
        let _ = self.work.send(work);
    }

    fn count(&self) -> usize {
        self.count
    }
}

/// Computations of programs, on the `LocalSet` of the program. Functions themselves run on threads, in no time.
#[derive(Debug)]
pub(super) struct PacedCompute {
    takes_ms: Range<u64>,
    dice: Mutex<Dice>,
}

impl PacedCompute {
    /// Each computation takes a time in this range of milliseconds.
    pub(super) fn new(takes_ms: Range<u64>, dice: Dice) -> Self {
        Self { takes_ms, dice: Mutex::new(dice) }
    }
}

impl Compute for PacedCompute {
    fn begin(&self, _thread: &str, computation: Computation) -> io::Result<()> {
        let takes = self.dice.lock().millis(self.takes_ms.clone());
        spawn_local(async move {
            sleep(takes).await;
            // Nobody waits for it when the runtime ends.
            let _ = spawn_blocking(computation).await;
        });
        Ok(())
    }
}

//! Enter on the terminal, while it shows what is known of a result: somebody has seen enough.
//!
//! A line is read, so the terminal stays as it is: nothing has to be put back however the process ends, and Ctrl-C does what it always does. The terminal is read from when there
//! is something to see: what was typed before is not meant for it. The terminal is read in the foreground alone: a process in the background would be stopped by that.

use std::{
    fs,
    io::{self, IsTerminal},
    sync::{
        Arc, Once,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{QueueSelector, tcflush},
};
use tokio::sync::watch;
use tracing::debug;

/// How often the thread looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Tells when Enter was pressed.
#[derive(Debug)]
pub struct EnoughKey(Option<Listens>);

#[derive(Debug)]
struct Listens {
    /// How often it was pressed since there was something to see.
    pressed: watch::Sender<u64>,
    started: Arc<Once>,
    over: Arc<AtomicBool>,
}

impl EnoughKey {
    /// Listens where people see what is shown and can answer: where stdin and stderr are terminals, and `drawn` says that it is drawn there.
    pub fn of_terminal(drawn: bool) -> Self {
        if !drawn || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Self(None);
        }
        Self(Some(Listens { pressed: watch::Sender::new(0), started: Arc::new(Once::new()), over: Arc::default() }))
    }

    /// Whether anybody can press it.
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// What says that there is something to see.
    pub fn shows(&self) -> impl Fn() + Send + Sync + 'static {
        let listens =
            self.0.as_ref().map(|Listens { pressed, started, over }| (pressed.clone(), started.clone(), over.clone()));
        move || {
            let Some((pressed, started, over)) = &listens else { return };
            started.call_once(|| {
                forget_typed();
                let (pressed, over) = (pressed.clone(), over.clone());
                let read = move || {
                    if let Err(error) = read_lines(&pressed, &over) {
                        debug!(%error, "the terminal is not read");
                    }
                };
                // Without a thread there is no key.
                if let Err(error) = std::thread::Builder::new().name("keys".into()).spawn(read) {
                    debug!(%error, "the terminal is not read");
                }
            });
        }
    }

    /// Resolves when it is pressed once more than `before`; how often it was.
    pub async fn pressed(&self, before: u64) -> u64 {
        let Some(Listens { pressed, .. }) = &self.0 else { return std::future::pending().await };
        let mut pressed = pressed.subscribe();
        let known = pressed.wait_for(|pressed| *pressed > before).await.map(|pressed| *pressed);
        match known {
            Ok(pressed) => pressed,
            // The terminal is gone.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for EnoughKey {
    fn drop(&mut self) {
        self.0.iter().for_each(|listens| listens.over.store(true, Ordering::Relaxed));
    }
}

/// Forgets what was typed and not read.
fn forget_typed() {
    let is_ours = fs::read_to_string("/proc/self/stat").is_ok_and(|stat| is_foreground(&stat));
    if is_ours && let Err(error) = tcflush(io::stdin(), QueueSelector::IFlush) {
        debug!(%error, "what was typed before counts, too");
    }
}

/// Until it is over, or there is nothing more to read.
fn read_lines(tell: &watch::Sender<u64>, over: &AtomicBool) -> io::Result<()> {
    let stdin = io::stdin();
    let mut buffer = [0; 1024];
    while !over.load(Ordering::Relaxed) {
        let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
        let wait = Timespec::try_from(LOOK_EVERY).map_err(io::Error::other)?;
        match poll(&mut polled, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            ready => drop(ready?),
        }
        if !is_foreground(&fs::read_to_string("/proc/self/stat")?) {
            std::thread::park_timeout(LOOK_EVERY);
            continue;
        }
        let read = rustix::io::read(&stdin, &mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        if buffer[..read].contains(&b'\n') {
            tell.send_modify(|pressed| *pressed += 1);
        }
    }
    Ok(())
}

/// Whether a process may read its terminal, by `/proc/self/stat`: it has none of its own, or is in its foreground.
fn is_foreground(stat: &str) -> bool {
    // Behind the name, which may have any characters: state, parent, group, session, terminal, and the group in its foreground.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or(stat, |(_, rest)| rest).split_whitespace().collect();
    match fields.get(2..6) {
        Some(&[group, _, _, foreground]) => foreground == "-1" || foreground == group,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_its_terminal_in_the_foreground_alone() {
        let stat = |foreground: i64| format!("71 (exobus (1) x) S 1 71 70 34816 {foreground} 4194560 1 0");
        assert!(is_foreground(&stat(71)) && is_foreground(&stat(-1)));
        assert!(!is_foreground(&stat(70)) && !is_foreground("") && !is_foreground("71 (exobus) S"));
    }

    #[tokio::test]
    async fn without_a_terminal_nobody_presses_it() {
        let key = EnoughKey::of_terminal(false);
        key.shows()();
        assert!(!key.is_there());
        assert!(tokio::time::timeout(Duration::from_millis(10), key.pressed(0)).await.is_err());
    }
}

//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{exit::Exit, temporary};

/// Folders that would be left behind if the process ended now.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A temporary folder goes too when a second signal ends the process; in the ordinary course its owner removes it.
pub fn remove_when_forced(folder: &Path) {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).push(folder.to_owned());
}

/// Tells when the first signal has come. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Listens from now on, in a thread of its own: a second signal ends the process whatever else is stuck.
    ///
    /// # Errors
    /// When the system has no thread or no signal handler left.
    pub fn listen() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (tell, told) = watch::channel(false);
        let (mut interrupt, mut terminate) = {
            let _inside = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                for first in [true, false] {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    if first {
                        tell.send_replace(true);
                    }
                }
                for folder in FOLDERS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                    // Somebody may still write into it; what can be removed is.
                    let _ = temporary::remove(&folder);
                }
                std::process::exit(Exit::Interrupted.code().into());
            });
        })?;
        Ok(Self(told))
    }

    /// A signal that has come already.
    #[cfg(test)]
    pub(crate) fn that_came() -> Self {
        Self(watch::channel(true).1)
    }

    /// No signal ever comes.
    #[cfg(test)]
    pub(crate) fn that_never_comes() -> Self {
        Self(watch::channel(false).1)
    }

    /// Waits for the first signal.
    pub async fn wait(&self) {
        let mut told = self.0.clone();
        // The thread lives as long as the process; were it gone, no signal could ever be told.
        if told.wait_for(|interrupted| *interrupted).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether the first signal has come.
    pub fn came(&self) -> bool {
        *self.0.borrow()
    }
}

//! The web page of one job that answers early: its groups with error bars, and how its error becomes smaller.
//!
//! A [`Page`] is served on 127.0.0.1, by a thread of its own, while the job runs. What it promises:
//!
//! - **It never slows the job.** A look is put into a [`Board`], of which the newest state alone is kept: who comes late has it at once, who does not read misses some, and nothing is kept for a viewer.
//! - **It shows nothing to who does not have its token**, which is random, compared in constant time, and in the fragment of the address: browsers do not send that, so it is in no log.
//! - **Other pages of the browser cannot read it**: there are no CORS headers, and requests for another host are refused (DNS rebinding).
//! - **It ends with the job.** Who looks then is told how the job ended, unless that takes longer than [`PATIENCE`].
//!
//! The page itself is one file, `page.html`, which fetches nothing from elsewhere.

mod access;
mod board;
mod listener;
mod server;
#[cfg(test)]
mod tests;

use std::{future::IntoFuture as _, io, sync::mpsc, thread::JoinHandle, time::Duration};

use tokio::{
    net::TcpListener,
    sync::oneshot,
    time::{sleep, timeout},
};

pub use self::board::{Board, State};
use self::{access::Token, listener::LimitedListener};
use crate::{
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
};

/// So long a page waits for viewers who have not yet taken what was shown last.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The same once somebody wants the process to end: who reads at all has it by then.
const HURRY: Duration = Duration::from_millis(100);

/// The page of one job.
#[derive(Debug)]
pub struct Page {
    url: String,
    board: Board,
    stop: oneshot::Sender<Interrupt>,
    thread: JoinHandle<()>,
}

impl Page {
    /// The same where somebody has asked for a page, whom its address is told on stderr.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn told(port: Option<u16>, title: impl FnOnce() -> String) -> Result<Option<Self>, Failure> {
        let page = port.map(|port| Self::open(port, title())).transpose()?;
        page.iter().for_each(|page| eprintln!("page: {}", page.url()));
        Ok(page)
    }

    /// Serves a page on this port of 127.0.0.1; 0: one that is free. `title` says what runs.
    ///
    /// # Errors
    /// Somebody else has the port, or the system has no thread left.
    pub fn open(port: u16, title: String) -> Result<Self, Failure> {
        let context = || format!("serve a page on 127.0.0.1:{port}");
        Self::serve(port, Board::new(title))
            .or_exit(Exit::InputOutput)
            .map_err(|failure: Failure| failure.context(context()))
    }

    fn serve(port: u16, board: Board) -> io::Result<Self> {
        let token = Token::random();
        let (stop, stopped) = oneshot::channel();
        let (listens, listening) = mpsc::channel();
        let router = server::router(board.clone(), token.clone());
        // Who opens a page may be within a runtime, which waits for no other.
        let run = move || {
            let bound = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
                let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", port)))?;
                Ok((runtime, listener.local_addr()?, listener))
            });
            let (runtime, listener) = match bound {
                Ok((runtime, address, listener)) => {
                    let _ = listens.send(Ok(address));
                    (runtime, listener)
                }
                Err(error) => return drop(listens.send(Err(error))),
            };
            runtime.block_on(serve(LimitedListener::new(listener), router, stopped));
        };
        let thread = std::thread::Builder::new().name("page".into()).spawn(run)?;
        let address = listening.recv().map_err(io::Error::other)??;
        Ok(Self { url: format!("http://{address}/#{}", token.text()), board, stop, thread })
    }

    /// Its address, with the token.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where what it shows is put.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Closes it when those who look have taken what was shown last, after [`PATIENCE`], or soon after the interrupt.
    pub fn close(self, interrupt: &Interrupt) {
        let Self { stop, thread, .. } = self;
        // A thread that has gone waits for nobody.
        let _ = stop.send(interrupt.clone());
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

async fn serve(listener: LimitedListener, router: axum::Router, stopped: oneshot::Receiver<Interrupt>) {
    let (no_more, nobody_new) = oneshot::channel::<()>();
    let closing = async { drop(nobody_new.await) };
    let served = axum::serve(listener, router).with_graceful_shutdown(closing).into_future();
    let over = async {
        // A page that is dropped waits for nobody.
        let Ok(interrupt) = stopped.await else { return };
        drop(no_more);
        if timeout(PATIENCE, interrupt.wait()).await.is_ok() {
            sleep(HURRY).await;
        }
    };
    tokio::select! {
        biased;
        _ = served => {}
        () = over => {}
    }
}

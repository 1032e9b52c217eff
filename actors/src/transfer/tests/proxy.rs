//! A proxy between client and server that does one kind of harm. Corruption must be done here: what the network
//! corrupts below TCP is repeated and never reaches an application.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::transfer::network::{Network, Socket};

/// What is done to a stream of bytes, by the number of bytes before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Harm {
    None,
    /// This bit of this byte is flipped.
    Flip {
        at: u64,
        bit: u8,
    },
    /// The connection is closed, both ways.
    Cut {
        at: u64,
    },
    /// Nothing more is passed on; the connection stays open.
    Stall {
        at: u64,
    },
    /// From here on byte by byte, one every 20 ms.
    Trickle {
        at: u64,
    },
}

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    /// One message for each time that harm was done.
    pub(super) done: Receiver<()>,
    /// One message for each connection that the client closed.
    pub(super) closed: Receiver<()>,
    /// Bytes that the server sent and that were passed on.
    pub(super) passed: Arc<AtomicU64>,
}

impl Proxy {
    /// Passes on to `server`: what the client says through `up`, what the server says through `down`.
    pub(super) fn start(network: &Arc<dyn Network>, server: SocketAddr, up: Harm, down: Harm) -> Self {
        let network = Arc::clone(network);
        let listener = network.listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.address();
        let (harmed, done) = unbounded();
        let (closing, closed) = unbounded();
        let passed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&passed);
        spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = network.connect(&server.to_string(), Duration::from_secs(10)) else { return };
                let (from, to) = (Arc::clone(&client), Arc::clone(&server));
                let (harmed_up, closing) = (harmed.clone(), closing.clone());
                spawn(move || {
                    pass(&*from, &*to, up, &harmed_up, &AtomicU64::new(0));
                    let _ = closing.send(());
                });
                let (harmed, count) = (harmed.clone(), Arc::clone(&count));
                spawn(move || pass(&*server, &*client, down, &harmed, &count));
            }
        });
        Self { address, done, closed, passed }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    // Ends with its sockets, at the latest with the process.
    std::thread::Builder::new().spawn(work).map(drop).unwrap();
}

/// Passes bytes on until one side closes; then both are closed.
fn pass(mut from: &dyn Socket, mut to: &dyn Socket, harm: Harm, done: &Sender<()>, passed: &AtomicU64) {
    let mut buffer = vec![0; 64 * 1024];
    let mut before = 0;
    'passing: while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        let range = before..before + count as u64;
        before += count as u64;
        match harm {
            Harm::Flip { at, bit } if range.contains(&at) => {
                bytes[(at - range.start) as usize] ^= 1 << bit;
                let _ = done.send(());
            }
            Harm::Cut { at } if range.contains(&at) => {
                let _ = to.write_all(&bytes[..(at - range.start) as usize]);
                let _ = done.send(());
                break;
            }
            Harm::Stall { at } if range.contains(&at) => {
                let _ = to.write_all(&bytes[..(at - range.start) as usize]);
                let _ = done.send(());
                // Reads on, so that it is the receiver that sees nothing, until somebody gives up.
                while let Ok(1..) = from.read(&mut buffer) {}
                break;
            }
            Harm::Trickle { at } if range.end > at => {
                let _ = done.send(());
                for byte in &*bytes {
                    if to.write_all(&[*byte]).is_err() {
                        break 'passing;
                    }
                    // The harm itself is slowness.
                    let (_keep, never) = crossbeam_channel::bounded::<()>(0);
                    let _ = never.recv_timeout(Duration::from_millis(20));
                }
                continue;
            }
            _ => {}
        }
        if to.write_all(bytes).is_err() {
            break;
        }
        passed.fetch_add(count as u64, Ordering::SeqCst);
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

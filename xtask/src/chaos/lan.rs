//! Hosts of their own for processes: network namespaces, joined by a switch in this process that can lose, repeat, delay and
//! cut what one says to another. The kernel here has no `tc netem`, so packets pass through TUN devices.
//!
//! Only namespaces that were made here are touched; their names hold the process id, and they go when [`Lan`] is dropped.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The device of a host.
pub(super) const DEVICE: &str = "exo0";
/// Packets of the size that most networks take.
const MTU: usize = 1500;

/// Hosts and the switch between them.
pub(super) struct Lan {
    hosts: Vec<String>,
    switch: Arc<Switch>,
    threads: Vec<JoinHandle<()>>,
}

/// What becomes of packets that are not cut off: shares of one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    pub(super) lost: f64,
    pub(super) repeated: f64,
    pub(super) delay: Duration,
    /// Each packet is delayed by up to so much more, so that they overtake each other.
    pub(super) jitter: Duration,
}

/// What the switch has done so far, in packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) cut: u64,
    pub(super) lost: u64,
    pub(super) repeated: u64,
}

impl Lan {
    /// Makes these hosts; all of them reach each other.
    pub(super) fn new(hosts: &[&str]) -> Result<Self> {
        let mut lan = Self { hosts: Vec::new(), switch: Arc::default(), threads: Vec::new() };
        let mut ports = Vec::new();
        for name in hosts {
            lan.hosts.push((*name).to_owned());
            ip(&["netns", "add", &lan.namespace(name)])?;
            ports.push(Arc::new(lan.plug_in(name)?));
        }
        lan.switch.ports.write().unwrap_or_else(PoisonError::into_inner).clone_from(&ports);
        for (number, port) in ports.into_iter().enumerate() {
            let switch = Arc::clone(&lan.switch);
            lan.threads.push(thread("chaos-port", move || switch.listen(number, &port))?);
        }
        let switch = Arc::clone(&lan.switch);
        lan.threads.push(thread("chaos-late", move || switch.deliver_late())?);
        Ok(lan)
    }

    fn namespace(&self, host: &str) -> String {
        format!("exochaos{}-{host}", std::process::id())
    }

    /// Makes the device of a host; what is written to it comes from the network, what is read from it goes there.
    fn plug_in(&self, host: &str) -> Result<File> {
        let namespace = self.namespace(host);
        // It belongs to the namespace of the thread that opens it.
        let device = self.within(host, || {
            let device = File::options().read(true).write(true).open("/dev/net/tun").context("open /dev/net/tun")?;
            tun::attach(&device, DEVICE).context("make a TUN device")?;
            Ok(device)
        })?;
        let address = format!("{}/24", self.address(host)?);
        ip(&["-n", &namespace, "addr", "add", &address, "dev", DEVICE])?;
        ip(&["-n", &namespace, "link", "set", DEVICE, "up", "mtu", &MTU.to_string(), "txqueuelen", "10000"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        Ok(device)
    }

    /// Calls it on a thread of its own that is on that host: what it opens is there.
    pub(super) fn within<R: Send>(&self, host: &str, call: impl FnOnce() -> Result<R> + Send) -> Result<R> {
        let namespace = self.open(host)?;
        let enter = move || {
            enter(&namespace)?;
            call()
        };
        std::thread::scope(|threads| threads.spawn(enter).join().ok().context("the thread of a host panicked")?)
    }

    /// A thread that stays on that host.
    pub(super) fn thread_on(&self, host: &str, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let namespace = self.open(host)?;
        let (entered, outcome) = std::sync::mpsc::channel();
        thread(name, move || {
            let is_there = enter(&namespace);
            let fails = is_there.is_err();
            if entered.send(is_there).is_ok() && !fails {
                run();
            }
        })?;
        outcome.recv().context("the thread of a host ended")?
    }

    fn open(&self, host: &str) -> Result<File> {
        let path = format!("/run/netns/{}", self.namespace(host));
        File::open(&path).with_context(|| format!("open {path}"))
    }

    fn number(&self, host: &str) -> Result<usize> {
        self.hosts.iter().position(|known| known == host).with_context(|| format!("no host {host}"))
    }

    pub(super) fn address(&self, host: &str) -> Result<Ipv4Addr> {
        Ok(address(self.number(host)?))
    }

    /// Words before a command that let it run on that host.
    pub(super) fn on(&self, host: &str) -> [String; 4] {
        ["ip", "netns", "exec", &self.namespace(host)].map(str::to_owned)
    }

    /// Nothing that `from` says arrives at `to` any more; the other way is as it was.
    pub(super) fn cut(&self, from: &str, to: &str) -> Result<()> {
        let way = (self.number(from)?, self.number(to)?);
        self.switch.rules_mut().cut.insert(way);
        Ok(())
    }

    /// Ends all cuts.
    pub(super) fn heal(&self) {
        self.switch.rules_mut().cut.clear();
    }

    pub(super) fn set_weather(&self, weather: Weather) {
        self.switch.rules_mut().weather = weather;
    }

    pub(super) fn counts(&self) -> Counts {
        let counters = &self.switch.counters;
        let [passed, cut, lost, repeated] = [&counters.passed, &counters.cut, &counters.lost, &counters.repeated]
            .map(|counter| counter.load(Ordering::Relaxed));
        Counts { passed, cut, lost, repeated }
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        // A device that is gone wakes the thread that reads from it.
        for host in &self.hosts {
            let namespace = self.namespace(host);
            let _ = ip(&["-n", &namespace, "link", "del", DEVICE]);
            let _ = ip(&["netns", "del", &namespace]);
        }
        self.switch.is_over.store(true, Ordering::Relaxed);
        self.switch.wake.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 232, 0, u8::try_from(number + 1).unwrap_or(u8::MAX))
}

fn ip(args: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(args).output().context("run ip (package iproute2)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", args.join(" "), said.trim());
    Ok(())
}

fn enter(namespace: &File) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).context("enter a namespace")
}

pub(super) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).context("start a thread")
}

/// Takes packets from devices and gives them to others.
#[derive(Default)]
struct Switch {
    ports: RwLock<Vec<Arc<File>>>,
    rules: RwLock<Rules>,
    late: Mutex<Late>,
    wake: Condvar,
    is_over: AtomicBool,
    random: AtomicU64,
    counters: Counters,
}

#[derive(Default)]
struct Rules {
    /// From whom to whom nothing arrives.
    cut: HashSet<(usize, usize)>,
    weather: Weather,
}

/// When a packet is due, its number, to whom it goes, and it.
type Due = (Instant, u64, usize, Vec<u8>);

/// Packets whose time has not come, the next one on top. The number keeps those of one instant in order.
#[derive(Default)]
struct Late {
    packets: BinaryHeap<Reverse<Due>>,
    number: u64,
}

#[derive(Default)]
struct Counters {
    passed: AtomicU64,
    cut: AtomicU64,
    lost: AtomicU64,
    repeated: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Switch {
    fn rules_mut(&self) -> std::sync::RwLockWriteGuard<'_, Rules> {
        self.rules.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn late(&self) -> MutexGuard<'_, Late> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number from 0 to 1 (SplitMix64): the same ones in each run, though packets come in another order.
    fn draw(&self) -> f64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.random.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
    }

    fn listen(&self, from: usize, port: &File) {
        let mut buffer = vec![0; 65536];
        let mut port = port;
        // It fails when the device is gone.
        while let Ok(length) = port.read(&mut buffer) {
            self.take(from, &buffer[..length]);
        }
    }

    #[allow(clippy::disallowed_methods, reason = "packets of real processes are late in real time")]
    fn take(&self, from: usize, packet: &[u8]) {
        let Some(to) = destination(packet) else { return };
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        let (weather, is_cut) = (rules.weather, rules.cut.contains(&(from, to)));
        drop(rules);
        if is_cut {
            return count(&self.counters.cut);
        }
        let happens = |share: f64| share > 0.0 && self.draw() < share;
        if happens(weather.lost) {
            return count(&self.counters.lost);
        }
        let twice = happens(weather.repeated);
        if twice {
            count(&self.counters.repeated);
        }
        for _ in 0..=usize::from(twice) {
            if weather.delay.is_zero() && weather.jitter.is_zero() {
                self.deliver(to, packet);
                continue;
            }
            let at = Instant::now() + weather.delay + weather.jitter.mul_f64(self.draw());
            let mut late = self.late();
            late.number += 1;
            let number = late.number;
            late.packets.push(Reverse((at, number, to, packet.to_vec())));
            drop(late);
            self.wake.notify_one();
        }
    }

    fn deliver(&self, to: usize, packet: &[u8]) {
        let port = self.ports.read().unwrap_or_else(PoisonError::into_inner).get(to).cloned();
        // What a host cannot take is lost, as on any network.
        if port.is_some_and(|port| (&*port).write(packet).is_ok()) {
            count(&self.counters.passed);
        }
    }

    #[allow(clippy::disallowed_methods, reason = "packets of real processes are late in real time")]
    fn deliver_late(&self) {
        let mut late = self.late();
        while !self.is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            let next = late.packets.peek().map(|Reverse((at, ..))| at.saturating_duration_since(now));
            match next {
                Some(Duration::ZERO) => {
                    let Some(Reverse((_, _, to, packet))) = late.packets.pop() else { continue };
                    drop(late);
                    self.deliver(to, &packet);
                    late = self.late();
                }
                // The end is looked for now and then: its call may have come before the wait.
                wait => {
                    let wait = wait.unwrap_or(Duration::from_millis(200));
                    late = self.wake.wait_timeout(late, wait).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

/// The number of the host that an IPv4 packet is for.
fn destination(packet: &[u8]) -> Option<usize> {
    let is_v4 = packet.first()? >> 4 == 4;
    match packet.get(16..20)? {
        [10, 232, 0, last] if is_v4 => usize::from(*last).checked_sub(1),
        _ => None,
    }
}

/// The one call for which the standard library has no name.
#[allow(unsafe_code, reason = "a TUN device is attached by an ioctl")]
mod tun {
    use std::fs::File;
    use std::io;

    use rustix::ioctl::{Setter, ioctl, opcode};

    /// `struct ifreq`, as far as it matters here.
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        flags: u16,
        rest: [u8; 22],
    }

    /// Whole IP packets, nothing before them.
    const TUN_WITHOUT_HEADERS: u16 = 0x0001 | 0x1000;
    const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<i32>(b'T', 202);

    pub(super) fn attach(device: &File, name: &str) -> io::Result<()> {
        let mut request = Request { name: [0; 16], flags: TUN_WITHOUT_HEADERS, rest: [0; 22] };
        request.name[..name.len().min(15)].copy_from_slice(&name.as_bytes()[..name.len().min(15)]);
        // SAFETY: TUNSETIFF reads an ifreq, which `Request` is laid out as, of 40 bytes, and keeps no pointer to it.
        unsafe { ioctl(device, Setter::<TUNSETIFF, Request>::new(request))? };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(to: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&to);
        packet
    }

    #[test]
    fn only_packets_for_hosts_have_a_destination() {
        assert_eq!(destination(&packet([10, 232, 0, 3])), Some(2));
        assert_eq!(destination(&packet([10, 232, 0, 0])), None);
        assert_eq!(destination(&packet([10, 9, 0, 3])), None);
        assert_eq!(destination(&[0x60; 40]), None);
        assert_eq!(destination(&[0x45; 12]), None);
    }

    #[test]
    fn a_cut_is_one_way_and_weather_takes_its_share() {
        let switch = Switch::default();
        switch.rules_mut().cut.insert((0, 1));
        (0..10).for_each(|_| switch.take(0, &packet([10, 232, 0, 2])));
        assert_eq!(switch.counters.cut.load(Ordering::Relaxed), 10);
        switch.rules_mut().weather = Weather { lost: 0.02, repeated: 0.5, ..Weather::default() };
        (0..10_000).for_each(|_| switch.take(1, &packet([10, 232, 0, 1])));
        let lost = switch.counters.lost.load(Ordering::Relaxed);
        assert!((100..400).contains(&lost), "{lost} of 10000 lost");
        assert!(switch.counters.repeated.load(Ordering::Relaxed) > 4_000);
        assert_eq!(switch.counters.cut.load(Ordering::Relaxed), 10);
    }
}

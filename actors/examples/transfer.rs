//! How fast do objects move between two processes? And what does it cost each of them?
//!
//! ```text
//! cargo run --release -p exobus-actors --example transfer [objects in flight: 1 2] [megabytes of one: 100]
//! ```
//!
//! The parent process starts itself once more as the serving one. Objects are random bytes in memory that was touched
//! before; every byte is verified against the checksum of its part. Beside the rate, the processor time that each side
//! takes for a gigabyte is printed: on a machine that is busy with other things only that figure means anything. `raw`
//! is a bare TCP stream between the same two processes; rounds without TLS and with it take turns.
#![allow(clippy::disallowed_methods, reason = "the bare stream that is measured beside the transfer is a real one")]

use std::collections::VecDeque;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use exobus_actors::transfer::tls::{CertifiedNode, DataTls, OwnFiles, TlsFiles};
use exobus_actors::transfer::{ClientOptions, Item, PeerName, ServerOptions, TransferClient, TransferServer};
use exobus_store::{
    Class, Clock, CopyId, Fill, PartMeta, Parts, RealDisk, RowHash, StageItem, StageRequest, StagedItem, Store,
    StoreOptions, SystemClock, WriterOptions,
};

const TOKEN: &str = "a token for measuring";
/// Different objects; more would not fit the processor's cache any less.
const OBJECTS: u128 = 4;
/// Tiny objects, and their size.
const TINY: u128 = 10_000;
const TINY_BYTES: usize = 1000;
const ROUNDS: usize = 5;
const BYTES_PER_ROUND: u64 = 1_000_000_000;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("serve") => serve(args[1].parse()?, Path::new(&args[2])),
        _ => measure(&args),
    }
}

fn copy(number: u128) -> CopyId {
    CopyId::new(1, number)
}

fn store(bytes: u64) -> Result<Store, Box<dyn Error>> {
    let options = StoreOptions { memory_bytes: bytes + (64 << 20), executors: 1, ..StoreOptions::default() };
    Ok(Store::open(options, Arc::new(RealDisk::new()), Arc::new(SystemClock::new()))?)
}

/// Writes the certificates of two nodes and of who has signed them.
fn certify(folder: &Path) -> Outcome {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate()?)?;
    std::fs::write(folder.join("ca.pem"), authority.pem())?;
    for name in ["serving", "fetching"] {
        let (key, mut params) = (rcgen::KeyPair::generate()?, rcgen::CertificateParams::default());
        params.subject_alt_names.push(rcgen::SanType::URI(node(name).uri().try_into()?));
        std::fs::write(folder.join(format!("{name}.pem")), params.signed_by(&key, &authority)?.pem())?;
        let path = folder.join(format!("{name}.key"));
        std::fs::write(&path, key.serialize_pem())?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn node(name: &str) -> CertifiedNode {
    CertifiedNode { cluster: "measured".to_owned(), node: name.to_owned() }
}

fn tls(folder: &Path, name: &str) -> Result<DataTls, Box<dyn Error>> {
    let own = OwnFiles { certificate: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) };
    let files = TlsFiles { authorities: folder.join("ca.pem"), own: Some(own) };
    Ok(DataTls::of_node(files, node(name), Arc::new(SystemClock::new()))?)
}

/// Serves objects until standard input ends; prints the three addresses: without TLS, with it, and of the bare stream.
fn serve(megabytes: usize, certificates: &Path) -> Outcome {
    let store = store(OBJECTS as u64 * megabytes as u64 * 1_000_000 + TINY as u64 * 4096)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut write = |id: u128, bytes: usize| -> Outcome {
        let mut writer = store.writer(copy(id), WriterOptions::default());
        writer.begin_part(Some(bytes as u64))?;
        for word in writer.spare()?.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
        writer.advance(bytes);
        writer.end_part(1, RowHash(0));
        writer.seal()?;
        Ok(())
    };
    for id in 0..OBJECTS {
        write(id, megabytes * 1_000_000)?;
    }
    for id in 0..TINY {
        write(OBJECTS + id, TINY_BYTES)?;
    }
    let clock = Arc::new(SystemClock::new());
    let options = |tls| ServerOptions { node: "serving".to_owned(), tls, ..ServerOptions::default() };
    let plain = TransferServer::start_with(options(None), TOKEN, store.clone(), clock.clone())?;
    let secured = options(Some(tls(certificates, "serving")?));
    let secured = TransferServer::start_with(secured, TOKEN, store.clone(), clock)?;
    let raw = TcpListener::bind("127.0.0.1:0")?;
    println!("{} {} {}", plain.address(), secured.address(), raw.local_addr()?);
    let serve_raw = move || {
        let Ok(block) = store.get(&copy(0), Parts::All).wait() else { return };
        while let Ok((mut stream, _)) = raw.accept() {
            while stream.write_all(&block).is_ok() {}
        }
    };
    std::thread::Builder::new().spawn(serve_raw)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Seconds of processor time that a process has taken.
fn processor_seconds(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    // Fields 14 and 15, in hundredths of a second, counted from behind the name.
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

struct Meter {
    clock: SystemClock,
    server: u32,
}

impl Meter {
    /// Prints rate and costs of what `work` moves.
    fn rate(&self, name: &str, work: impl FnOnce() -> Result<u64, Box<dyn Error>>) -> Outcome {
        let processors = || (processor_seconds(std::process::id()), processor_seconds(self.server));
        let (before, begun) = (processors(), self.clock.now());
        let gigabytes = work()? as f64 / 1e9;
        let (seconds, after) = ((self.clock.now() - begun).as_secs_f64(), processors());
        println!(
            "{name}: {:.2} GB/s; processor seconds per GB: {:.2} fetching, {:.2} serving",
            gigabytes / seconds,
            (after.0 - before.0) / gigabytes,
            (after.1 - before.1) / gigabytes
        );
        Ok(())
    }
}

fn measure(args: &[String]) -> Outcome {
    let megabytes: usize = args.get(1).map_or(Ok(100), |text| text.parse())?;
    let in_flight: Vec<usize> = match args.first() {
        Some(text) => vec![text.parse()?],
        None => vec![1, 2],
    };
    let certificates = tempfile::tempdir()?;
    certify(certificates.path())?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["serve", &megabytes.to_string()])
        .arg(certificates.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output of the serving process")?).read_line(&mut line)?;
    let addresses: Vec<&str> = line.split_whitespace().collect();
    let [plain, secured, raw] = addresses[..] else { return Err("the serving process did not start".into()) };
    let meter = Meter { clock: SystemClock::new(), server: child.id() };
    meter.rate("raw", || receive_raw(raw.parse()?))?;
    let largest = in_flight.iter().copied().max().unwrap_or(1) as u64;
    let here = store((largest + 1) * megabytes as u64 * 1_000_000 + TINY as u64 * 4096)?;
    let way = |how, address: &str, tls| {
        let options = ClientOptions { node: "fetching".to_owned(), tls, ..ClientOptions::default() };
        let peer = PeerName { node: "serving".to_owned(), address: address.to_owned() };
        (how, TransferClient::with(options, TOKEN, Arc::new(SystemClock::new())), peer)
    };
    let ways =
        [way("in the clear", plain, None), way("with TLS", secured, Some(tls(certificates.path(), "fetching")?))];
    for in_flight in in_flight {
        for _ in 0..ROUNDS {
            for (how, client, peer) in &ways {
                let name = format!("{megabytes} MB objects, {in_flight} in flight, {how}");
                meter.rate(&name, || fetch_many(client, peer, &here, in_flight))?;
            }
        }
    }
    for (how, client, peer) in &ways {
        println!("{how}:");
        tiny(&meter, client, peer, &here)?;
    }
    drop(child.stdin.take());
    child.wait()?;
    Ok(())
}

fn receive_raw(address: SocketAddr) -> Result<u64, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    let mut room = vec![1; 100_000_000];
    let mut moved = 0;
    while moved < BYTES_PER_ROUND {
        let at = moved as usize % room.len();
        let end = (at + (256 << 10)).min(room.len());
        moved += stream.read(&mut room[at..end])? as u64;
    }
    Ok(moved)
}

fn room(here: &Store, wanted: Vec<(CopyId, Vec<PartMeta>)>) -> Result<Vec<Fill>, Box<dyn Error>> {
    let items = wanted.into_iter().map(|(object, metas)| StageItem::Remote { object, metas }).collect();
    let staged = here.stage(StageRequest { items, class: Class::Arguments }).wait()?;
    let fill = |item| match item {
        StagedItem::Fill(fill) => Ok(fill),
        _ => Err("a remote item was local".into()),
    };
    staged.items.into_iter().map(fill).collect()
}

fn fetch_many(
    client: &TransferClient,
    address: &PeerName,
    here: &Store,
    in_flight: usize,
) -> Result<u64, Box<dyn Error>> {
    let (mut under_way, mut asked, mut moved) = (VecDeque::new(), 0, 0);
    while moved < BYTES_PER_ROUND {
        while under_way.len() < in_flight {
            let item: Item = (copy(asked % OBJECTS), Parts::All);
            asked += 1;
            let metas = client.directory(address, vec![item]).wait()?.remove(0).ok_or("not there")?;
            under_way.push_back(client.fetch(address, vec![item], room(here, vec![(item.0, metas)])?));
        }
        let Some(first) = under_way.pop_front() else { break };
        moved += first.wait()?.iter().map(|block| block.len() as u64).sum::<u64>();
    }
    Ok(moved)
}

/// Many tiny objects in one request, then one after the other.
fn tiny(meter: &Meter, client: &TransferClient, address: &PeerName, here: &Store) -> Outcome {
    let items: Vec<Item> = (0..TINY).map(|id| (copy(OBJECTS + id), Parts::All)).collect();
    for _ in 0..3 {
        let begun = meter.clock.now();
        let directory = client.directory(address, items.clone()).wait()?;
        let with_directory = meter.clock.now();
        let wanted = items.iter().zip(directory).filter_map(|((id, _), metas)| Some((*id, metas?))).collect();
        let fills = room(here, wanted)?;
        let with_room = meter.clock.now();
        client.fetch(address, items.clone(), fills).wait()?;
        println!(
            "{TINY} parts of {TINY_BYTES} bytes: directory {:.1?}, room {:.1?}, fetch {:.1?}",
            with_directory - begun,
            with_room - with_directory,
            meter.clock.now() - with_room
        );
    }
    let mut times = Vec::new();
    for item in items.iter().take(2000) {
        let metas = client.directory(address, vec![*item]).wait()?.remove(0).ok_or("not there")?;
        let fills = room(here, vec![(item.0, metas)])?;
        let begun = meter.clock.now();
        client.fetch(address, vec![*item], fills).wait()?;
        times.push(meter.clock.now() - begun);
    }
    times.sort();
    println!("one part of {TINY_BYTES} bytes: p50 {:.1?}, p99 {:.1?}", times[1000], times[1980]);
    Ok(())
}

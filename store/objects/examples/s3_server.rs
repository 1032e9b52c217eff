//! A server of S3 on a folder of this machine, for measurements: each folder in it is a bucket, and the keys are `test` and `secret`.
//!
//! ```sh
//! cargo run --release -p exobus-objects --features server --example s3_server -- /data/buckets 127.0.0.1:9000
//! ```

use std::path::Path;

use exobus_objects::server::Server;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(root), Some(address)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: s3_server ROOT ADDRESS:PORT");
        std::process::exit(2);
    };
    let server = Server::start(Path::new(&root), &address);
    println!("ready at {}", server.endpoint());
    loop {
        std::thread::park();
    }
}

//! Objects of S3 are files as all file systems owe them, also while requests go wrong.

mod faults;
mod web;

use std::rc::Rc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use exobus_files::Location;
use exobus_files::contract::Fixture;
use exobus_objects::server::Server;
use exobus_objects::{Addresses, S3Keys, Settings};
use tempfile::TempDir;

exobus_files::file_system_contract!(s3, crate::in_a_bucket);

/// The server of this process, for which its file systems are registered.
struct World {
    _folder: TempDir,
    server: Server,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("bucket")).unwrap();
    let server = Server::start(folder.path(), "127.0.0.1:0");
    exobus_objects::register(&Settings {
        s3_endpoint: Some(server.endpoint()),
        s3_keys: S3Keys::Given { id: "test".to_owned(), secret: "secret".to_owned() },
        addresses: Addresses::public_and(&["127.0.0.1".to_owned()]).unwrap(),
        ..Settings::default()
    });
    World { _folder: folder, server }
});

/// What keys of one test begin with.
fn prefix() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// What is below a location of the bucket.
fn key(location: &Location) -> String {
    location.to_string().strip_prefix("s3://bucket/").unwrap().to_owned()
}

fn put(file: &Location, bytes: &[u8]) {
    // Another client would: in one request, in place of what is there.
    WORLD.server.put("bucket", &key(file), bytes);
}

fn in_a_bucket() -> Fixture {
    let folder = Location::from(&*format!("s3://bucket/{}/folder", prefix()));
    let server = WORLD.server.clone();
    let count = move |folder: &Location| {
        let below = format!("{}/", key(folder));
        server.objects("bucket", &below) + server.uploads("bucket", &below)
    };
    Fixture { folder, put: Box::new(put), count: Rc::new(count), guard: Box::new(()) }
}

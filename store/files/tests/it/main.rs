//! What every file system owes, on this machine and on one as object stores are; and what only files of this machine have.

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use exobus_files::Location;
use exobus_files::contract::Fixture;
use exobus_files::contract::memory::MemoryFiles;

mod outputs;

exobus_files::file_system_contract!(local, crate::in_a_folder);
exobus_files::file_system_contract!(memory, crate::in_memory);

/// A folder of this machine.
fn in_a_folder() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let put = |file: &Location, bytes: &[u8]| {
        let path = file.as_path().unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Another file in its place: what is written over within a tick of the clock has the same time.
        fs::write(path.with_extension("put"), bytes).unwrap();
        fs::rename(path.with_extension("put"), path).unwrap();
    };
    let count = |folder: &Location| files_below(folder.as_path().unwrap());
    Fixture { folder: folder.path().into(), put: Box::new(put), count: Rc::new(count), guard: Box::new(folder) }
}

fn files_below(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}

/// A folder of its own in the memory that all tests of the process share.
fn in_memory() -> Fixture {
    static FILES: OnceLock<MemoryFiles> = OnceLock::new();
    static FOLDERS: AtomicU64 = AtomicU64::new(0);
    let files = FILES.get_or_init(|| {
        let files = MemoryFiles::default();
        exobus_files::register("memory", std::sync::Arc::new(files.clone()));
        files
    });
    let folder = format!("memory://bucket/{}", FOLDERS.fetch_add(1, Ordering::Relaxed));
    let (to_put, to_count) = (files.clone(), files.clone());
    Fixture {
        folder: folder.as_str().into(),
        put: Box::new(move |file, bytes| to_put.put(file, bytes)),
        count: Rc::new(move |folder| {
            let (objects, uploads) = to_count.count_below(folder);
            objects + uploads
        }),
        guard: Box::new(()),
    }
}

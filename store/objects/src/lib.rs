//! Files that are objects of S3 and of what speaks it (`s3://bucket/key`), and files of web servers, which are read only (`http://`,
//! `https://`): the [`FileSystem`](exobus_files::FileSystem)s of these schemes.
//!
//! - [`register`]: has them answer for their schemes, in all of the process;
//! - [`Settings`]: where objects are, whose rights are used, which addresses a job may name;
//! - [`Usage`]: how many requests were made, and bytes moved, since the process began.
//!
//! Requests go through one client of the process: so many at a time, repeated after what passes (`retry`), over connections to addresses
//! that are allowed (`address`), to where they were sent and nowhere else: redirects are not followed. They run on a few threads of
//! their own; who calls waits.

mod address;
mod client;
mod credentials;
mod failure;
mod http_files;
mod read;
mod retry;
mod runtime;
mod s3;
#[cfg(feature = "server")]
pub mod server;
mod settings;
mod usage;

use std::sync::Arc;

pub use address::{Addresses, AddressesError};
pub use settings::{S3Keys, Settings};
pub use usage::Usage;

/// Has the file systems of this crate answer for URLs of their schemes, in all of the process, from now on. Nothing is connected to before
/// a URL is used.
pub fn register(settings: &Settings) {
    let client = client::Client::new(settings);
    exobus_files::register("s3", Arc::new(s3::S3Files::new(settings, &client)));
    let web = http_files::WebFiles::new(client);
    exobus_files::register("http", Arc::new(web.clone()));
    exobus_files::register("https", Arc::new(web));
}

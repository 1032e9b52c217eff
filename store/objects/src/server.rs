//! A server of S3 on files of this machine, which does what it is told to do wrong: for tests and measurements.
//!
//! What is below is `s3s-fs`. What it lacks is here: it lists without ETags, takes folders for objects, and looks at a condition and acts on it in two steps.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::dto::*;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};
use tokio::net::TcpListener;

use crate::runtime::{spawn, wait_for};

/// What goes wrong with one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It is answered with this status, and what `Retry-After` says where anything is said; nothing is done.
    Status(u16, Option<u64>),
    /// It is done after so long.
    Slow(Duration),
    /// It is done, and the connection ends after so many bytes of the answer's body.
    Truncated(usize),
    /// It is done, and nobody is told.
    AnswerLost,
    /// The connection ends and nothing is done.
    Dropped,
    /// A part is said to be there, and is not.
    PartLost,
    /// The client is sent elsewhere.
    Redirect(String),
    /// It is done when somebody lets it go.
    Held(Hold),
}

/// Holds a request until it is let go. Clones are the same.
#[derive(Clone, Debug)]
pub struct Hold(Arc<(tokio::sync::Semaphore, tokio::sync::Semaphore)>);

impl Default for Hold {
    fn default() -> Self {
        Self(Arc::new((tokio::sync::Semaphore::new(0), tokio::sync::Semaphore::new(0))))
    }
}

impl Hold {
    /// Waits until a request is held.
    pub fn wait(&self) {
        let hold = self.clone();
        wait_for(async move { hold.0.0.acquire().await.map(drop) }).expect("never closed");
    }

    /// Whether a request is held.
    pub fn holds(&self) -> bool {
        self.0.0.available_permits() > 0
    }

    /// Lets it go, and those that come later.
    pub fn let_go(&self) {
        self.0.1.add_permits(1);
    }

    async fn hold(&self) {
        self.0.0.add_permits(1);
        let _ = self.0.1.acquire().await;
    }
}

/// Decides what goes wrong with a request, by its method and its path and query.
pub type Faults = Box<dyn Fn(&Method, &str) -> Option<Fault> + Send + Sync>;

/// A server that listens as long as this process lives. Clones are the same.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

struct Shared {
    root: PathBuf,
    address: SocketAddr,
    service: S3Service,
    store: Store,
    /// By what their paths begin with.
    faults: Mutex<BTreeMap<String, Faults>>,
    /// What was asked for, in its order.
    log: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.0.address).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Serves the folders of `root`, which are its buckets, to who has the keys `test` and `secret`.
    ///
    /// # Panics
    /// The root is no folder, or nothing can be listened on at `address`.
    #[allow(clippy::disallowed_methods, reason = "it is a server of tests, in no simulation")]
    pub fn start(root: &Path, address: &str) -> Self {
        let store = Store {
            files: Arc::new(s3s_fs::FileSystem::new(root).expect("a folder")),
            root: root.to_owned(),
            uploads: Arc::default(),
            turn: Arc::default(),
        };
        let mut builder = S3ServiceBuilder::new(store.clone());
        builder.set_auth(SimpleAuth::from_single("test", "secret"));
        let (service, address) = (builder.build(), address.to_owned());
        let listener = wait_for(async move { TcpListener::bind(address).await }).expect("an address to listen on");
        let address = listener.local_addr().expect("it is bound");
        let (root, faults, log) = (root.to_owned(), Mutex::default(), Mutex::default());
        let server = Self(Arc::new(Shared { root, address, service, store, faults, log }));
        let serving = server.clone();
        spawn(async move {
            loop {
                let Ok((connection, _)) = listener.accept().await else { continue };
                let serving = serving.clone();
                spawn(async move {
                    let answer = hyper::service::service_fn(|request| serving.answer(request));
                    let http = hyper::server::conn::http1::Builder::new();
                    // A connection that ends early is what is tested.
                    let _ = http.serve_connection(TokioIo::new(connection), answer).await;
                });
            }
        });
        server
    }

    /// Where it listens: `http://127.0.0.1:1234`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// What goes wrong from now on with requests whose paths begin so (`/bucket/key`), or that list what is there; `None`: nothing.
    pub fn set_faults(&self, path: &str, faults: Option<Faults>) {
        let mut all = lock(&self.0.faults);
        match faults {
            Some(faults) => all.insert(path.to_owned(), faults),
            None => all.remove(path),
        };
    }

    fn fault(&self, method: &Method, path: &str) -> Option<Fault> {
        let all = lock(&self.0.faults);
        let is_of = |prefix: &str| {
            let key = prefix.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
            let is_list = path.contains("list-type") && !key.is_empty() && path.contains(&key.replace('/', "%2F"));
            path.starts_with(prefix) || is_list
        };
        all.iter().filter(|(prefix, _)| is_of(prefix)).find_map(|(_, faults)| faults(method, path))
    }

    /// Puts an object as another client does.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn put(&self, bucket: &str, key: &str, bytes: &[u8]) {
        let input = PutObjectInput::builder()
            .bucket(bucket.to_owned())
            .key(key.to_owned())
            .body(Some(Body::from(Bytes::copy_from_slice(bytes)).into()))
            .build();
        let request = S3Request {
            input: input.expect("a bucket and a key"),
            method: Method::PUT,
            uri: http::Uri::default(),
            headers: http::HeaderMap::default(),
            extensions: http::Extensions::default(),
            credentials: None,
            region: None,
            service: None,
            trailing_headers: None,
        };
        let store = self.0.store.clone();
        wait_for(async move { store.put_object(request).await }).expect("an object");
    }

    /// What was asked for since the last call: method, path and query.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0.log))
    }

    /// Uploads to keys of this bucket that begin so, which have neither been completed nor given up.
    pub fn uploads(&self, bucket: &str, prefix: &str) -> usize {
        let uploads = lock(&self.0.store.uploads);
        uploads.values().filter(|(of, key)| of == bucket && key.starts_with(prefix)).count()
    }

    /// Objects whose keys begin so.
    pub fn objects(&self, bucket: &str, prefix: &str) -> usize {
        let mut folders = vec![self.0.root.join(bucket)];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let key =
                    path.strip_prefix(self.0.root.join(bucket)).expect("it is below").to_string_lossy().into_owned();
                if path.is_dir() {
                    folders.push(path);
                } else if key.starts_with(prefix) {
                    count += 1;
                }
            }
        }
        count
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Answer>, s3s::HttpError> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        lock(&self.0.log).push(format!("{} {path}", request.method()));
        let fault = self.fault(request.method(), &path);
        let said = |status: u16, header: Option<(header::HeaderName, String)>| {
            let code = if status == 503 { "SlowDown" } else { "Fault" };
            let body = format!("<Error><Code>{code}</Code><Message>as it was told</Message></Error>");
            let mut response = Response::new(whole(body.into()));
            *response.status_mut() = StatusCode::from_u16(status).expect("a status");
            if let Some((name, value)) = header {
                response.headers_mut().insert(name, HeaderValue::from_str(&value).expect("text"));
            }
            response
        };
        match fault {
            Some(Fault::Status(status, after)) => {
                // As servers do that are asked too much: what is sent is not read.
                return Ok(said(status, after.map(|after| (header::RETRY_AFTER, after.to_string()))));
            }
            Some(Fault::Redirect(to)) => return Ok(said(307, Some((header::LOCATION, to)))),
            Some(Fault::Dropped) => return Err(dropped()),
            Some(Fault::PartLost) => {
                let _ = request.into_body().collect().await;
                let mut response = Response::new(whole(Bytes::new()));
                response.headers_mut().insert(header::ETAG, HeaderValue::from_static("\"lost\""));
                return Ok(response);
            }
            Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
            Some(Fault::Held(ref hold)) => hold.hold().await,
            Some(Fault::Truncated(_) | Fault::AnswerLost) | None => {}
        }
        let response = self.0.service.call(request.map(Body::from)).await?;
        match fault {
            Some(Fault::AnswerLost) => Err(dropped()),
            Some(Fault::Truncated(bytes)) => Ok(response.map(|body| cut(body, bytes))),
            _ => Ok(response.map(|body| Answer::new(body.map_err(std::io::Error::other)))),
        }
    }
}

/// The body of an answer.
type Answer = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;

fn whole(bytes: Bytes) -> Answer {
    Answer::new(http_body_util::Full::new(bytes).map_err(|never| match never {}))
}

/// An answer of which no more than so many bytes come.
fn cut(body: Body, bytes: usize) -> Answer {
    let mut left = bytes;
    let frames = body.into_data_stream().map(move |piece| {
        let mut piece = piece.map_err(std::io::Error::other)?;
        if left == 0 {
            return Err(std::io::Error::other("cut"));
        }
        piece.truncate(left);
        left -= piece.len();
        Ok(Frame::data(piece))
    });
    Answer::new(http_body_util::StreamBody::new(frames))
}

fn dropped() -> s3s::HttpError {
    s3s::HttpError::new("the connection is dropped".into())
}

/// The buckets.
#[derive(Clone)]
struct Store {
    files: Arc<s3s_fs::FileSystem>,
    root: PathBuf,
    /// Bucket and key of each upload that is under way.
    uploads: Arc<Mutex<BTreeMap<String, (String, String)>>>,
    /// A condition is looked at and acted upon in one turn.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Store {
    /// What `s3s-fs` takes for an object is a folder of its own.
    fn is_folder(&self, bucket: &str, key: &str) -> bool {
        self.root.join(bucket).join(key).is_dir()
    }

    fn sees_upload(&self, upload: &str) -> S3Result<()> {
        match lock(&self.uploads).contains_key(upload) {
            true => Ok(()),
            false => Err(s3_error!(NoSuchUpload)),
        }
    }

    async fn complete(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let _turn = self.turn.lock().await;
        let upload = request.input.upload_id.clone();
        self.sees_upload(&upload)?;
        let parts = request.input.multipart_upload.as_ref().and_then(|upload| upload.parts.as_ref());
        let is_lost = |part: &CompletedPart| {
            let number = part.part_number.unwrap_or_default();
            !self.root.join(format!(".upload_id-{upload}.part-{number}")).exists()
        };
        if parts.is_some_and(|parts| parts.iter().any(is_lost)) {
            return Err(s3_error!(InvalidPart));
        }
        let done = self.files.complete_multipart_upload(request).await?;
        lock(&self.uploads).remove(&upload);
        Ok(done)
    }
}

#[async_trait::async_trait]
impl S3 for Store {
    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        if self.is_folder(&request.input.bucket, &request.input.key) {
            return Err(s3_error!(NoSuchKey));
        }
        let wanted = request.input.if_match.clone();
        let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
        let answer = self.files.get_object(request).await?;
        if let (Some(wanted), Some(tag)) = (wanted.as_ref().and_then(|wanted| wanted.as_etag()), &answer.output.e_tag)
            && !wanted.strong_cmp(tag)
        {
            tracing::debug!(bucket, key, "another version is there");
            return Err(s3_error!(PreconditionFailed));
        }
        Ok(answer)
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        match self.is_folder(&request.input.bucket, &request.input.key) {
            true => Err(s3_error!(NoSuchKey)),
            false => self.files.head_object(request).await,
        }
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let asked = request.clone();
        let mut listed = self.files.list_objects_v2(request).await?;
        if let Some(objects) = &mut listed.output.contents {
            for object in objects {
                let (bucket, key) = (asked.input.bucket.clone(), object.key.clone().unwrap_or_default());
                let head = HeadObjectInput::builder().bucket(bucket).key(key).build();
                let head = asked.clone().map_input(|_| head.expect("a bucket and a key"));
                // It may have gone meanwhile.
                if let Ok(head) = self.files.head_object(head).await {
                    object.e_tag = head.output.e_tag;
                }
            }
        }
        Ok(listed)
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let _turn = self.turn.lock().await;
        self.files.put_object(request).await
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        let _turn = self.turn.lock().await;
        if let Some(wanted) = &request.input.if_match {
            let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
            let head = HeadObjectInput::builder().bucket(bucket).key(key).build().expect("a bucket and a key");
            let there = self.head_object(request.clone().map_input(|_| head)).await?;
            let is_it = match (wanted.as_etag(), &there.output.e_tag) {
                (Some(wanted), Some(tag)) => wanted.strong_cmp(tag),
                _ => true,
            };
            if !is_it {
                return Err(s3_error!(PreconditionFailed));
            }
        }
        self.files.delete_object(request).await
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let _turn = self.turn.lock().await;
        self.files.delete_objects(request).await
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let of = (request.input.bucket.clone(), request.input.key.clone());
        if !self.root.join(&of.0).is_dir() {
            return Err(s3_error!(NoSuchBucket));
        }
        let begun = self.files.create_multipart_upload(request).await?;
        if let Some(upload) = &begun.output.upload_id {
            lock(&self.uploads).insert(upload.clone(), of);
        }
        Ok(begun)
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        self.sees_upload(&request.input.upload_id)?;
        self.files.upload_part(request).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        // It copies parts, which takes long for large ones: a client that does not wait for that leaves no half of it, and hears how it ended when it asks again.
        let (store, upload) = (self.clone(), request.input.upload_id.clone());
        let completion = tokio::spawn(async move { store.complete(request).await });
        completion.await.unwrap_or_else(|error| Err(s3_error!(error, InternalError, "complete upload {upload}")))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let _turn = self.turn.lock().await;
        let upload = request.input.upload_id.clone();
        self.sees_upload(&upload)?;
        let given_up = self.files.abort_multipart_upload(request).await?;
        lock(&self.uploads).remove(&upload);
        Ok(given_up)
    }
}

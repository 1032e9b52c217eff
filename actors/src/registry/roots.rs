//! Which files jobs may read and write: those below the roots that the node allows, folders or URLs.
//!
//! The check asks the kernel (`openat2` with `RESOLVE_BENEATH`), so `..` and symbolic links that lead out of a root are
//! refused wherever in the path they are. A path is checked when a task is about to open it. Tasks make no symbolic
//! links, so only somebody with other ways to write below a root could exchange a folder for a link in between.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use exobus_files::Location;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// The roots of a node. Cheap to clone. The default has none: everything is allowed that the process may do.
#[derive(Clone, Default)]
pub struct Roots(Arc<[Root]>);

struct Root {
    /// As it was configured.
    path: PathBuf,
    /// Where it is a folder of this machine, and not a URL.
    folder: Option<Folder>,
}

struct Folder {
    /// Without symbolic links.
    real: PathBuf,
    opened: OwnedFd,
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|root| &root.path)).finish()
    }
}

/// A path that no task may use here.
#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    /// It is not below any root, or leads out of it.
    #[error("{}: jobs may use files below {roots:?} only: {reason}", path.display())]
    Outside {
        /// The path.
        path: PathBuf,
        /// The roots of the job's tenant.
        roots: Roots,
        /// What is in the way.
        reason: String,
    },
    /// A root cannot be used.
    #[error("the folders that jobs are kept to (roots): {}", path.display())]
    Root {
        /// The root.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Roots {
    /// Opens the roots, absolute paths of folders, or URLs that stand for what is below them; without any, everything is allowed.
    ///
    /// # Errors
    /// [`RootsError::Root`]: a path is not absolute, not there, or no folder; a URL has `.` or `..` in it.
    pub fn open(paths: &[PathBuf]) -> Result<Self, RootsError> {
        let open = |path: &PathBuf| {
            let failed = |source| RootsError::Root { path: path.clone(), source };
            if is_url(path) {
                return match goes_up(path) {
                    true => Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "a URL with `.` or `..` in it"))),
                    false => Ok(Root { path: path.clone(), folder: None }),
                };
            }
            if !path.is_absolute() {
                return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "not an absolute path")));
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = openat(CWD, path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
            let real = path.canonicalize().map_err(failed)?;
            Ok(Root { path: path.clone(), folder: Some(Folder { real, opened }) })
        };
        paths.iter().map(open).collect::<Result<Vec<_>, _>>().map(|roots| Self(roots.into()))
    }

    /// Whether everything is allowed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The roots as they were configured.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.0.iter().map(|root| root.path.clone()).collect()
    }

    /// Checks a path of a job. What is not there yet is checked as far as it is.
    ///
    /// # Errors
    /// [`RootsError::Outside`].
    pub fn check(&self, path: &Path) -> Result<(), RootsError> {
        if self.is_empty() {
            return Ok(());
        }
        let mut reason = "it is elsewhere".to_owned();
        for Root { path: root, folder } in &*self.0 {
            let Some(Folder { real, opened }) = folder else {
                match is_url(path) && path.starts_with(root) {
                    true if goes_up(path) => reason = "`.` or `..` is no name below a URL".to_owned(),
                    true => return Ok(()),
                    false => {}
                }
                continue;
            };
            let rest = path.strip_prefix(root).or_else(|_| path.strip_prefix(real));
            match rest.map(|rest| beneath(opened, rest)) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => reason = error,
                Err(_) => {}
            }
        }
        Err(RootsError::Outside { path: path.to_owned(), roots: self.clone(), reason })
    }
}

/// Whether it is no file of this machine.
fn is_url(path: &Path) -> bool {
    Location::from(path).as_path().is_none()
}

/// Whether a URL has a name in it that stands for another place.
fn goes_up(url: &Path) -> bool {
    url.as_os_str().as_encoded_bytes().split(|byte| *byte == b'/').any(|name| matches!(name, b"." | b".."))
}

/// Whether `path`, relative to `folder`, stays below it.
fn beneath(folder: &OwnedFd, path: &Path) -> Result<(), String> {
    let mut here = path;
    loop {
        let name = if here.as_os_str().is_empty() { Path::new(".") } else { here };
        let (flags, resolve) = (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS);
        match openat2(folder, name, flags, Mode::empty(), resolve) {
            Ok(_) => return Ok(()),
            // Somebody renamed something on the way: the kernel asks to look again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // What is not there will be made in its parent; going up from there is not for the kernel to judge yet.
            Err(Errno::NOENT) => match (here.parent(), here.components().next_back()) {
                (Some(parent), Some(Component::Normal(_))) => here = parent,
                _ => return Err("it goes up from what is not there".to_owned()),
            },
            Err(Errno::XDEV) => return Err("`..` or a symbolic link leads out".to_owned()),
            Err(error) => return Err(io::Error::from(error).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct World {
        folder: tempfile::TempDir,
        roots: Roots,
    }

    impl World {
        /// `allowed/` with a file and links of all kinds, `secret/` beside it.
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            fs::create_dir_all(at("allowed/sub")).unwrap();
            fs::create_dir(at("secret")).unwrap();
            fs::write(at("allowed/sub/file"), "").unwrap();
            fs::write(at("secret/file"), "").unwrap();
            symlink("sub/file", at("allowed/inner")).unwrap();
            symlink("../secret", at("allowed/up")).unwrap();
            symlink(at("secret/file"), at("allowed/absolute")).unwrap();
            symlink("../secret/new", at("allowed/dangling")).unwrap();
            symlink(at("allowed"), at("alias")).unwrap();
            let roots = Roots::open(&[at("allowed")]).unwrap();
            Self { folder, roots }
        }

        fn check(&self, path: &str) -> Result<(), RootsError> {
            self.roots.check(&self.folder.path().join(path))
        }
    }

    #[test]
    fn what_is_below_a_url_is_allowed_and_nothing_beside_it() {
        let world = World::new();
        let roots = Roots::open(&[world.folder.path().join("allowed"), "s3://bucket/team-a/".into()]).unwrap();
        let is_allowed = |path: &str| roots.check(Path::new(path)).is_ok();
        for inside in ["s3://bucket/team-a", "s3://bucket/team-a/x.csv", "s3://bucket/team-a/deep/er/*.parquet"] {
            assert!(is_allowed(inside), "{inside}");
        }
        for outside in [
            "s3://bucket/team-ab/x.csv",
            "s3://bucket/team-a/../team-b/x.csv",
            "s3://bucket/team-a/./x.csv",
            "s3://bucket",
            "s3://other/team-a/x.csv",
            "gs://bucket/team-a/x.csv",
            "/bucket/team-a/x.csv",
        ] {
            assert!(!is_allowed(outside), "{outside}");
        }
        assert!(is_allowed(world.folder.path().join("allowed/sub/file").to_str().unwrap()));
        let words = roots.check(Path::new("s3://bucket/team-a/../b")).unwrap_err().to_string();
        assert!(words.contains("s3://bucket/team-a/") && words.contains("`..`"), "{words}");
        assert_eq!(Roots::open(&roots.paths()).unwrap().paths(), roots.paths(), "as executors are told them");
        assert!(matches!(Roots::open(&["s3://bucket/../x".into()]), Err(RootsError::Root { .. })));
    }

    #[test]
    fn what_is_below_a_root_is_allowed() {
        let world = World::new();
        let inside = [
            "allowed",
            "allowed/sub/file",
            "allowed/sub/../sub/file",
            "allowed/inner",
            "allowed/new",
            "allowed/new/deeper/part-00000",
        ];
        for path in inside {
            world.check(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    #[test]
    fn what_leads_out_is_refused_and_the_error_names_it() {
        let world = World::new();
        let outside = [
            "secret/file",
            "allowed-not/file",
            "allowed/../secret/file",
            "allowed/sub/../../secret/file",
            "allowed/up/file",
            "allowed/up/new",
            "allowed/absolute",
            "allowed/dangling",
            "allowed/new/../../secret/file",
            "alias/../secret/file",
        ];
        for path in outside {
            let error = world.check(path).expect_err(path).to_string();
            assert!(error.contains(path) && error.contains("allowed\"]"), "{error}");
        }
        let relative = world.roots.check(Path::new("sub/file"));
        assert!(relative.is_err(), "nobody knows where it is relative to");
    }

    #[test]
    fn a_root_that_is_a_link_allows_both_of_its_names() {
        let world = World::new();
        let roots = Roots::open(&[world.folder.path().join("alias")]).unwrap();
        for path in ["alias/sub/file", "allowed/sub/file"] {
            roots.check(&world.folder.path().join(path)).unwrap();
        }
        assert!(roots.check(&world.folder.path().join("secret/file")).is_err());
    }

    #[test]
    fn no_roots_allow_everything_and_bad_ones_are_refused() {
        Roots::default().check(Path::new("/anything/../at/all")).unwrap();
        let world = World::new();
        let bad = ["relative".into(), world.folder.path().join("nowhere"), world.folder.path().join("secret/file")];
        for path in bad {
            assert!(matches!(Roots::open(&[path]), Err(RootsError::Root { .. })));
        }
    }
}

//! [`Need`]: what a row needs of the machine besides the binary. A [`Row`](super::Row) declares it, and it is looked for before
//! the row is begun, so that one that cannot be run makes nothing.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Need {
    /// Mounts, namespaces, other users.
    Root,
    /// A program, and the Debian package that has it.
    Program(&'static str, &'static str),
    /// A file that the kernel provides, and what it stands for.
    File(&'static str, &'static str),
    /// A library that shows another clock to who loads it.
    Faketime,
}

const IP: Need = Need::Program("ip", "iproute2");
const MOUNT: Need = Need::Program("mount", "mount");
const TUN: Need = Need::File("/dev/net/tun", "TUN devices");

/// Nothing at all.
pub(super) const NOTHING: &[Need] = &[];
/// Another user.
pub(super) const ROOT: &[Need] = &[Need::Root];
/// A [`Lan`](super::lan::Lan).
pub(super) const HOSTS: &[Need] = &[Need::Root, IP, TUN];
/// A [`Lan`](super::lan::Lan) with [`Proxies`](super::proxy::Proxies).
pub(super) const PROXIES: &[Need] = &[Need::Root, IP, TUN, Need::Program("nft", "nftables")];
/// A disk in memory.
pub(super) const SMALL_DISK: &[Need] = &[Need::Root, MOUNT];
/// A [`Disk`](super::disk::Disk) in a file.
pub(super) const EXT4: &[Need] =
    &[Need::Root, MOUNT, Need::Program("mkfs.ext4", "e2fsprogs"), Need::File("/dev/loop-control", "loop devices")];
/// A [`FaultyDisk`](super::faulty_disk::FaultyDisk).
pub(super) const FAULTY_DISK: &[Need] = &[Need::Root, Need::File("/dev/fuse", "file systems of processes")];
/// Memory control groups.
pub(super) const GROUPS: &[Need] =
    &[Need::Root, Need::File("/sys/fs/cgroup/memory/memory.limit_in_bytes", "memory control groups, version 1")];
/// Clocks that jump.
pub(super) const CLOCKS: &[Need] = &[Need::Faketime];

impl Need {
    fn is_there(self) -> bool {
        match self {
            Self::Root => fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0),
            Self::Program(name, _) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
            }
            Self::File(path, _) => Path::new(path).exists(),
            Self::Faketime => faketime().is_some(),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => write!(f, "root"),
            Self::Program(name, package) => write!(f, "{name} (package {package})"),
            Self::File(path, what) => write!(f, "{path} ({what})"),
            Self::Faketime => write!(f, "libfaketime (package faketime)"),
        }
    }
}

/// Where Debian's `faketime` has its library.
pub(super) fn faketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let places = folders.chain([PathBuf::from("/usr/lib")]).map(|folder| folder.join("faketime/libfaketime.so.1"));
    places.into_iter().find(|path| path.exists())
}

/// Which of these this machine lacks.
pub(super) fn missing(needs: &[Need]) -> Vec<Need> {
    needs.iter().copied().filter(|need| !need.is_there()).collect()
}

/// For people: "root, ip (package iproute2)".
pub(super) fn text(needs: &[Need]) -> String {
    needs.iter().map(Need::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named_with_where_it_comes_from() {
        let (shell, program) = (Need::Program("sh", "dash"), Need::Program("no-such-program", "none"));
        let (processes, file) = (Need::File("/proc", "processes"), Need::File("/proc/none", "nothing"));
        let lacking = missing(&[shell, program, processes, file]);
        assert_eq!(lacking, [program, file]);
        assert_eq!(text(&lacking), "no-such-program (package none), /proc/none (nothing)");
    }
}

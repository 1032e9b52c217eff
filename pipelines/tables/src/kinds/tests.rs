use std::fs;
use std::path::{Path, PathBuf};

use exobus_actors::registry::{Roots, TaskContext, TaskError};
use exobus_actors::spec::{Plan, Spec, SpecCode, SpecError};
use exobus_actors::task;
use exobus_actors::task::{FunctionName, Resources};
use exobus_shuffle::Strategy;
use exobus_shuffle::jobs::RandomShuffle;
use exobus_shuffle::jobs::sort::{CutsFrom, SortParams};
use exobus_shuffle::keyed::KeyedParams;
use serde::de::DeserializeOwned;

use crate::jobs::convert::ConvertTable;
use crate::jobs::dedupe::{DedupeTable, Keep};
use crate::jobs::join::{JoinKind, JoinTables, Pair};
use crate::jobs::map_batches::{Batches, MapTable, MappedFile};
use crate::jobs::repartition::RepartitionTable;
use crate::jobs::shuffle::ShuffleTable;
use crate::jobs::sort::SortTable;
use crate::jobs::{FileSize, Folders, WriteOptions};
use crate::reading::ReadOptions;
use crate::semantics::{KeyColumn, Nulls};
use crate::sinks::{Compression, OutputFormat};

/// A folder with a table and a file of records.
struct Files(tempfile::TempDir);

impl Files {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("table.csv"), "id,word\n1,a\n").unwrap();
        fs::write(folder.path().join("records"), [b'x'; 200]).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn spec(&self, kind: &str, input: &str, more: &str) -> Spec {
        let text = format!("kind = '{kind}'\ninputs = ['{}']\noutput = '/out'\n{more}", self.path(input).display());
        Spec::parse(text.as_bytes()).unwrap()
    }

    fn plan(&self, kind: &str, input: &str, more: &str) -> Result<Plan, SpecError> {
        self.spec(kind, input, more).plan()
    }

    /// The parameters of this program that a spec leads to.
    #[track_caller]
    fn params<P: DeserializeOwned>(&self, program: &str, (kind, input, more): (&str, &str, &str)) -> P {
        let plan = self.plan(kind, input, more).unwrap();
        assert_eq!(plan.program, program);
        assert_eq!((&plan.reads[..], &plan.writes[..]), (&[self.path(input)][..], &[PathBuf::from("/out")][..]));
        rmp_serde::from_slice(&plan.params).unwrap()
    }

    #[track_caller]
    fn refused(&self, kind: &str, input: &str, more: &str) -> (SpecCode, String, String) {
        let error = self.plan(kind, input, more).unwrap_err();
        (error.code, error.at.unwrap_or_default(), error.message)
    }
}

#[test]
fn records_are_sorted_as_they_are_and_tables_by_a_key() {
    let files = Files::make();
    let told: SortParams = files.params("sort@1", ("sort", "records", "cuts = 'uniform'\npartitions = 4"));
    assert_eq!((told.cuts, told.partitions, told.strategy), (CutsFrom::Uniform, Some(4), None));
    // Who is not known to be a table is no table: the job says that it is not there.
    let told: SortParams = files.params("sort@1", ("sort", "missing", "strategy = 'push'"));
    assert_eq!((told.cuts, told.strategy), (CutsFrom::Sampled, Some(Strategy::Push)));

    let key = "key = ['word:desc:nulls-first', 'id']";
    let told: SortTable = files.params("table.sort@2", ("sort", "table.csv", key));
    let word = KeyColumn { column: "word".into(), descending: true, nulls: Nulls::First };
    assert_eq!(told.key, [word.clone(), KeyColumn::rising("id")]);
    assert_eq!(word.to_string(), "word:desc:nulls-first");
    let told: SortTable = files.params("table.sort@2", ("sort", "records", "format = 'parquet'"));
    assert_eq!((told.key, told.table.writing.format), (super::key_of_records(), Some(OutputFormat::Parquet)));

    let (code, at, message) = files.refused("sort", "table.csv", "");
    assert_eq!((code, at.as_str()), (SpecCode::Invalid, "key"));
    assert!(
        message.contains("table.csv: a table is sorted by columns") && message.contains("`key = \"COLUMN\"`"),
        "{message}"
    );
    let (_, at, message) = files.refused("sort", "missing", "where = 'id = 1'");
    assert_eq!(at, "where");
    assert!(message.contains("`input_format = \"records\"`"), "{message}");
    let (_, at, message) = files.refused("sort", "records", "verify = true\ncuts = 'uniform'");
    assert_eq!(at, "cuts");
    assert!(message.contains("`verify` makes a table of them"), "{message}");
    let (_, at, message) = files.refused("sort", "records", "key = 'word:down'");
    assert_eq!(at, "key");
    assert!(message.contains("\"word:down\""), "{message}");
}

#[test]
fn what_a_table_is_read_and_written_by_is_told() {
    let files = Files::make();
    let more = "select = ['word', 'id']\nwhere = 'id > 1'\nschema = 'id int64'\ninput_format = 'csv'\nformat = 'arrow'\n\
                compression = 'zstd:3'\nrow_group_rows = 7\nfile_bytes = '1 MiB'\nverify = true\npartial = true\nhive = false";
    let told: ConvertTable = files.params("table.convert@2", ("convert", "table.csv", more));
    let reading = ReadOptions {
        format: Some("csv".into()),
        schema: Some("id int64".into()),
        json_mixed: None,
        select: Some(vec!["word".into(), "id".into()]),
        filter: Some("id > 1".parse().unwrap()),
        hive: Some(false),
        folders: None,
        needed: None,
        computed: None,
        split_bytes: None,
    };
    let writing = WriteOptions {
        format: Some(OutputFormat::Arrow),
        compression: Some(Compression::Zstd(3)),
        group_rows: Some(7),
        file_size: FileSize::Bytes(1 << 20),
        verify: true,
    };
    assert_eq!((told.table.reading, told.table.writing, told.table.partial), (reading, writing, true));
    let told: ConvertTable = files.params("table.convert@2", ("convert", "table.csv", "rows_per_file = 5"));
    assert_eq!(told.table.writing, WriteOptions { file_size: FileSize::Rows(5), ..WriteOptions::default() });
    let told: ConvertTable = files.params("table.convert@2", ("convert", "table.csv", "select = []\npartitions = 5"));
    assert_eq!((told.table.reading, told.table.writing.file_size), (ReadOptions::default(), FileSize::Count(5)));

    for (more, at, said) in [
        ("where = 'id >'", "where", "id >"),
        ("compression = 'brotli'", "compression", "brotli"),
        ("format = 'avro'", "format", "\"parquet\""),
        ("rows_per_file = 5\npartitions = 2", "rows_per_file", "`partitions` and `rows_per_file`"),
        ("file_bytes = '1MB'\npartitions = 2", "file_bytes", "cannot both be said"),
        ("row_group_rows = 0", "row_group_rows", "from 1 to 1000000000"),
    ] {
        let (code, place, message) = files.refused("convert", "table.csv", more);
        assert_eq!((code, place.as_str()), (SpecCode::Invalid, at), "{message}");
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn records_are_shuffled_as_they_are_unless_more_is_asked_for() {
    let files = Files::make();
    let told: KeyedParams<RandomShuffle> = files.params("random_shuffle@1", ("shuffle", "records", "seed = 7"));
    assert_eq!(told.job, RandomShuffle { seed: 7 });
    let told: ShuffleTable = files.params("table.shuffle@2", ("shuffle", "records", "seed = 7\nrows_per_file = 5"));
    assert_eq!((told.seed, told.table.writing.file_size), (7, FileSize::Rows(5)));
    let told: ShuffleTable = files.params("table.shuffle@2", ("shuffle", "table.csv", "seed = 9"));
    assert_eq!(told.seed, 9);
    assert_eq!(files.refused("shuffle", "records", "").0, SpecCode::Missing);
}

#[test]
fn tables_are_deduplicated_by_a_key_and_records_by_theirs() {
    let files = Files::make();
    let more = "key = 'word'\nkeep = 'last'\norder_by = 'id:desc'";
    let told: DedupeTable = files.params("table.dedupe@2", ("dedupe", "table.csv", more));
    let id = KeyColumn { descending: true, ..KeyColumn::rising("id") };
    assert_eq!((told.key, told.keep, told.order_by), (vec![KeyColumn::rising("word")], Keep::Last, vec![id]));
    let told: DedupeTable = files.params("table.dedupe@2", ("dedupe", "records", ""));
    assert_eq!((told.key, told.keep), (super::key_of_records(), Keep::First));
    let (code, at, message) = files.refused("dedupe", "table.csv", "");
    assert_eq!((code, at.as_str()), (SpecCode::Invalid, "key"));
    assert!(message.contains("`key = \"COLUMN\"`"), "{message}");
}

#[test]
fn tables_are_repartitioned_into_files_by_columns_or_into_folders() {
    let files = Files::make();
    let repartition =
        |more| -> RepartitionTable { files.params("table.repartition@1", ("repartition", "table.csv", more)) };
    let told = repartition("partitions = 3");
    assert_eq!((told.table.writing.file_size, told.moves_rows()), (FileSize::Count(3), false));
    let told = repartition("by = ['word', 'id:desc']\npartition_by = 'word'\nmax_folders = 7");
    let id = KeyColumn { descending: true, ..KeyColumn::rising("id") };
    assert_eq!(told.by, [KeyColumn::rising("word"), id]);
    assert_eq!(told.folders, Some(Folders { columns: vec!["word".into()], folders_max: 7 }));
    assert_eq!(repartition("partition_by = ['word']").folders, Some(Folders::of(vec!["word".into()])));
    let (code, at, message) = files.refused("repartition", "table.csv", "file_bytes = '1MB'");
    assert_eq!((code, at.as_str()), (SpecCode::Invalid, "partitions"));
    assert!(message.contains("`partition_by = \"COLUMN\"`"), "{message}");
    let (_, at, message) = files.refused("repartition", "table.csv", "partitions = 2\nmax_folders = 7");
    assert!(at == "max_folders" && message.contains("`partition_by`"), "{message}");
}

#[task(name = "kinds.clean", version = 3, deterministic = true)]
fn clean(context: &mut TaskContext<'_>, batches: Batches) -> Result<MappedFile, TaskError> {
    batches.map(context, Ok)
}

#[test]
fn rows_are_mapped_by_a_function_that_is_registered() {
    let files = Files::make();
    for name in ["kinds.clean", "kinds.clean@3"] {
        let more = format!("function = '{name}'\nrows_per_file = 9");
        let told: MapTable = files.params("table.map_batches@3", ("map_batches", "table.csv", &more));
        assert_eq!(told.function, FunctionName::of(clean));
        assert_eq!(told.table.writing.file_size, FileSize::Rows(9));
        assert_eq!(told.resources, Resources::cpu(1000));
    }
    let more = "function = 'kinds.clean'\nresources = ['gpu=0.5', 'cpu=2']";
    let plan = files.plan("map_batches", "table.csv", more).unwrap();
    assert_eq!(plan.needs, Resources::cpu(2000).with("gpu", 500));
    for wrong in ["gpu", "gpu=", "gpu=none", "gpu=0", "=1", "g pu=1", "gpu=1e9"] {
        let more = format!("function = 'kinds.clean'\nresources = ['{wrong}']");
        let (code, at, message) = files.refused("map_batches", "table.csv", &more);
        assert_eq!((code, at.as_str()), (SpecCode::Invalid, "resources"), "{wrong}");
        assert!(message.contains(wrong), "{message}");
    }
    for name in ["kinds.clean@2", "kinds.cleans", ""] {
        let (code, at, message) = files.refused("map_batches", "table.csv", &format!("function = '{name}'"));
        assert_eq!((code, at.as_str()), (SpecCode::Invalid, "function"));
        assert!(message.contains(&format!("no function is registered here as {name:?}")), "{message}");
    }
    assert_eq!(
        files.spec("map_batches", "table.csv", "function = 'kinds.clean'").explain().unwrap_err().code,
        SpecCode::Invalid
    );
}

#[test]
fn tables_are_joined_and_what_begins_with_right_is_of_the_right_one() {
    let files = Files::make();
    let more = |more: &str| format!("right = ['{}']\n{more}", files.path("records").display());
    let all = "on = ['id=key', 'word']\nhow = 'full'\nsuffix = '_r'\nselect = ['id', 'word']\nright_where = 'key is not null'\n\
               right_input_format = 'csv'\nright_schema = 'key int64'\nright_hive = false\n\
               file_bytes = '1MiB'";
    let spec = files.spec("join", "table.csv", &more(all));
    for (plan, program, writes) in [
        (spec.plan().unwrap(), "table.join@1", &[PathBuf::from("/out")][..]),
        (spec.explain().unwrap(), "table.join.explain@2", &[]),
    ] {
        assert_eq!((plan.program.as_str(), &plan.writes[..]), (program, writes));
        assert_eq!(plan.reads, [files.path("table.csv"), files.path("records")]);
        let told: JoinTables = rmp_serde::from_slice(&plan.params).unwrap();
        let on = [Pair { left: "id".into(), right: "key".into() }, Pair::same("word")];
        assert_eq!((&told.query.on[..], told.query.kind), (&on[..], JoinKind::Full));
        assert_eq!(
            (told.query.suffix.as_deref(), told.table.writing.file_size),
            (Some("_r"), FileSize::Bytes(1 << 20))
        );
        let select = Some(vec!["id".into(), "word".into()]);
        assert_eq!(told.table.reading, ReadOptions { select, ..ReadOptions::default() });
        let right_reading = ReadOptions {
            format: Some("csv".into()),
            schema: Some("key int64".into()),
            filter: Some("key is not null".parse().unwrap()),
            hive: Some(false),
            ..ReadOptions::default()
        };
        assert_eq!((told.right, told.right_reading), (vec![files.path("records")], right_reading));
    }
    assert_eq!(spec.paths().unwrap().reads, [files.path("table.csv"), files.path("records")]);
    for (text, at, said) in [
        (more(""), "on", "`on = "),
        (more("on = []"), "on", "needs columns"),
        (more("on = 'id='"), "on", "LEFT=RIGHT"),
        (more("on = 'id,id=word'"), "on", "in two pairs"),
        (more("on = 'id'\nhow = 'outer'"), "how", "\"full\""),
        (more("on = 'id'\nright_where = 'id >'"), "right_where", "id >"),
        (more("on = 'id'\nrows_per_file = 7"), "rows_per_file", "no field of `join`"),
        ("on = 'id'".to_owned(), "right", "`right = "),
    ] {
        let (_, place, message) = files.refused("join", "table.csv", &text);
        assert_eq!(place, at, "{message}");
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn what_is_explained_needs_no_output() {
    let files = Files::make();
    for (kind, input, more, program) in [
        ("sort", "records", "", "sort.explain@1"),
        ("sort", "table.csv", "key = 'id'", "table.explain@2"),
        ("shuffle", "records", "", "random_shuffle.explain@1"),
        ("shuffle", "table.csv", "", "table.shuffle.explain@1"),
        ("dedupe", "records", "", "table.dedupe.explain@1"),
        ("convert", "records", "", "table.convert.explain@1"),
        ("repartition", "table.csv", "partitions = 2", "table.convert.explain@1"),
        ("repartition", "table.csv", "partition_by = 'word'", "table.repartition.explain@1"),
    ] {
        let mut spec = files.spec(kind, input, more);
        spec.fields.remove("output");
        let plan = spec.explain().unwrap();
        assert_eq!((plan.program.as_str(), &plan.reads[..]), (program, &[files.path(input)][..]));
        assert_eq!(plan.writes, [] as [&Path; 0], "{program}");
        spec.plan().unwrap_err();
    }
}

#[test]
fn no_link_leads_who_plans_out_of_the_roots_of_a_tenant() {
    let (inside, outside) = (Files::make(), Files::make());
    let folder = inside.path("folder");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(outside.path("table.csv"), folder.join("a.csv")).unwrap();
    let roots = Roots::open(&[inside.0.path().to_owned()]).unwrap();
    let spec = inside.spec("sort", "folder", "");
    let seen = spec.plan().unwrap_err();
    assert!(seen.message.contains("a.csv"), "a table has no key of its own: {seen}");
    assert_eq!(spec.plan_within(&roots).unwrap().program, "sort@1", "of a file outside nothing is known");
    fs::remove_file(folder.join("a.csv")).unwrap();
    std::os::unix::fs::symlink("../table.csv", folder.join("a.csv")).unwrap();
    assert_eq!(spec.plan_within(&roots).unwrap_err(), seen, "a link that stays inside");
}

"""What verbs have to make of a table."""

import os

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

import compare
import files
import groups
import joins
from sql import duckdb_type, literal, order_terms, quoted, resolve


class Written:
    """The output of a verb, in the order of its files."""

    def __init__(self, folder, form, schema):
        is_part = lambda name: name.removesuffix(".gz").removesuffix(".zst").endswith(f".{form}")  # noqa: E731
        self.form, self.folder, self.paths = form, folder, [path for path in files.below(folder) if is_part(path)]
        tables = [read(path, form, schema) for path in self.paths]
        # A table without a row has no folder, and so no file.
        tables = tables or [schema.empty_table()]
        self.lengths, self.rows = [table.num_rows for table in tables], pa.concat_tables(tables)
        # Where there is no row, it may be text.
        self.ids = self.rows.column("id").combine_chunks().cast(pa.int64())


def read(path, form, schema):
    if form == "parquet":
        return pq.read_table(path, partitioning=None)
    if form == "arrow":
        with pa.memory_map(path) as file:
            return pa.ipc.open_file(file).read_all()
    texts = pa.csv.ConvertOptions(column_types={name: pa.string() for name in schema.names}, null_values=[""], strings_can_be_null=True,
                                  quoted_strings_can_be_null=False)
    parsing = pa.csv.ParseOptions(delimiter={"csv": ",", "tsv": "\t"}[form], newlines_in_values=True)
    table = pa.csv.read_csv(path, parse_options=parsing, convert_options=texts)
    of = lambda name: schema.field(name).type if name in schema.names else pa.string()  # noqa: E731
    return pa.table({name: column.cast(of(name)) for name, column in zip(table.column_names, table.columns)})


def check_sort(oracle, written, key, size):
    """Files in the order of the key; rows of one key are in that of the input."""
    columns, terms = ordered(oracle, "k", key)
    ids = oracle.ids(f"select id from {oracle.rows_of(columns)} order by {', '.join([*terms, 'id'])}")
    return lengths_differ(written, size, None) or order_differs(oracle, written, ids, key) or rows_differ(oracle, written)


def check_dedupe(oracle, written, key, keep, order_by, size):
    """One row of each key, in the order of the keys."""
    (keys, key_terms), (ties, tie_terms) = ordered(oracle, "k", key), ordered(oracle, "o", order_by)
    partition = f"partition by {', '.join(keys)}"
    ranked = (f"select *, row_number() over ({partition} order by {', '.join([*tie_terms, 'id'])}) as place, count(*) over ({partition}) as places "
              f"from {oracle.rows_of({**keys, **ties})}")
    stays = {"First": "place = 1", "Last": "place = places"}[keep]
    ids = oracle.ids(f"select id from ({ranked}) where {stays} order by {', '.join(key_terms)}")
    return lengths_differ(written, size, None) or order_differs(oracle, written, ids, [*key, *order_by]) or rows_differ(oracle, written)


def check_shuffle(oracle, written, size):
    """All rows, in an order that is not that of the input, and in files of even length."""
    ids = oracle.ids(f"select id from {oracle.rows_of({})} order by id")
    if not written.ids.sort().equals(ids):
        return f"other rows: {len(written.ids)}, not {len(ids)}"
    if len(ids) > 20 and written.ids.equals(ids):
        return "rows are in the order of the input"
    return lengths_differ(written, size, "even") or rows_differ(oracle, written)


def check_convert(oracle, written, size):
    """All rows in the order of the input."""
    ids = oracle.ids(f"select id from {oracle.rows_of({})} order by id")
    lengths = "full" if "Rows" in size else "even"
    return lengths_differ(written, size, lengths) or order_differs(oracle, written, ids, []) or rows_differ(oracle, written)


def check_repartition(oracle, written, by, folders, size):
    """Rows in the order of the input, or in that of a key, each key in one file; in folders of their values, which DuckDB reads as columns."""
    columns, terms = ordered(oracle, "k", by)
    of_folders = {f"f{at}": name for at, name in enumerate(folders)}
    if not by and not folders:
        return check_files(oracle, written, "even", size, [], terms)
    if not folders:
        return check_files(oracle, written, None, size, by, terms) or divided(oracle, written, columns, {})
    return (hive_differs(oracle, written, of_folders) or folder_order_differs(oracle, written, {**columns, **of_folders}, terms)
            or (divided(oracle, written, columns, of_folders) if by else None) or rows_differ(oracle, written, folders))


def check_files(oracle, written, lengths, size, by, terms):
    columns, _ = ordered(oracle, "k", by)
    ids = oracle.ids(f"select id from {oracle.rows_of(columns)} order by {', '.join([*terms, 'id'])}")
    return lengths_differ(written, size, lengths) or order_differs(oracle, written, ids, by) or rows_differ(oracle, written)


def numbered(oracle, written):
    """The rows of the output as DuckDB sees them: of each its `id`, which file it is in, and its place in all files."""
    numbers = [number for number, length in enumerate(written.lengths) for _ in range(length)]
    oracle.connection.register("numbered", pa.table({"id": written.ids, "file": pa.array(numbers, pa.int64()), "stands": pa.array(range(len(numbers)), pa.int64())}))
    return "numbered"


def divided(oracle, written, columns, folders):
    """Whether rows that are alike in a key are in several files of a folder."""
    alike = ", ".join([*columns, *folders])
    query = f"select {alike} from {oracle.rows_of({**columns, **folders})} as r join {numbered(oracle, written)} as n on r.id = n.id group by {alike} having count(distinct file) > 1"
    count = len(oracle.connection.sql(query).fetchall())
    return f"{count} keys are in several files" if count else None


def hive_differs(oracle, written, folders):
    """Whether DuckDB reads from the folders what the rows have in these columns."""
    if not written.paths:
        count = oracle.connection.sql(f"select count(*) from {oracle.rows_of({})}").fetchall()[0][0]
        return f"no file for {count} rows" if count else None
    read = f"read_parquet({literal(os.path.join(written.folder, '**', '*.parquet'))}, hive_partitioning = true, hive_types_autocast = false, filename = '__file')"
    types = {name: oracle.types[column] for name, column in folders.items()}
    selects = [f"cast({quoted(column)} as {duckdb_type(types[name])}) as {name}" for name, column in folders.items()]
    oracle.connection.execute(f"create or replace temp table hive as select id, parse_dirpath(__file) as folder, {', '.join(selects)} from {read}")
    unequal = " or ".join(f"r.{name} is distinct from h.{name}" for name in folders)
    rows = oracle.rows_of(folders)
    found = oracle.connection.sql(f"select r.id, h.id from {rows} as r full join hive as h on r.id = h.id where r.id is null or h.id is null or {unequal} limit 5").fetchall()
    if found:
        return f"rows {found} of the input and of DuckDB's are not in the folders of their values"
    several = oracle.connection.sql(f"select folder from hive group by folder having count(distinct row({', '.join(folders)})) > 1").fetchall()
    twice = oracle.connection.sql(f"select {', '.join(folders)} from hive group by all having count(distinct folder) > 1").fetchall()
    return f"folders of several values {several[:3]}, values of several folders {twice[:3]}" if several or twice else None


def folder_order_differs(oracle, written, columns, terms):
    """Whether rows of a folder are in another order, from one of its files to the next."""
    names = ", ".join(name for name in columns if name.startswith("f"))
    query = f"""select id from (select id, row_number() over (partition by {names} order by {', '.join([*terms, 'id'])}) as place,
                row_number() over (partition by {names} order by stands) as found
                from (select r.*, n.stands from {oracle.rows_of(columns)} as r join {numbered(oracle, written)} as n on r.id = n.id)) where place <> found limit 5"""
    found = oracle.connection.sql(query).fetchall()
    return f"rows {found} stand elsewhere in their folders" if found else None


def check_group(oracle, written, by, aggregates, having, top, size):
    """What is said of groups, each of which is known by its least `id`, in the order of their keys."""
    per = top["per"] if top else []
    key = [{"column": column, "descending": False, "nulls": "Last"} for column in [*per, *(column for column in by if column not in per)]]
    keys, terms = ordered(oracle, "k", key)
    columns = {f"a{at}": aggregate["column"] for at, aggregate in enumerate(aggregates) if aggregate["column"] and aggregate["function"] not in groups.BY_ROW}
    selects = [f"{groups.expression(aggregate, f'a{at}')} as v{at}" for at, aggregate in enumerate(aggregates)]
    query = f"select {', '.join([*keys, *selects])} from {oracle.rows_of({**keys, **columns})}"
    if keys:
        query += f" group by {', '.join(keys)}"
    if having:
        query += " having count(*) > 1"
    order = terms
    if top:
        falling = [f"v{at} desc" for at, aggregate in enumerate(aggregates) if aggregate["name"] in [column["column"] for column in top["order_by"]]]
        per_keys = [f"k{at}" for at in range(len(per))]
        partition = f"partition by {', '.join(per_keys)} " if per else ""
        query = f"select * from (select *, row_number() over ({partition}order by {', '.join([*falling, *terms])}) as place from ({query})) where place <= {top['rows']}"
        per_terms = ordered(oracle, "k", key[: len(per)])[1] if per else []
        order = [*per_terms, *falling, *terms]
    values = ", ".join(f"v{at}" for at in range(len(aggregates)))
    ordered_by = f" order by {', '.join(order)}" if order else ""
    found = oracle.connection.sql(f"select {values} from ({query}){ordered_by}").to_arrow_table()
    ids = found.column("v0").combine_chunks().cast(pa.int64())
    return lengths_differ(written, size, "even") or order_differs(oracle, written, ids, key) or groups.differ(oracle, written, by, aggregates, found)


def check_join(oracle, written, on, kind, suffix, order, size):
    """Rows of two tables that have one key, each of which is known by its `id`, in the order of the key or of one of the tables."""
    return lengths_differ(written, size, None) or joins.differ(oracle, written, on, kind, suffix, order) or duckdb_reads(oracle, written)


VERBS = {"repartition": check_repartition, "sort": check_sort, "shuffle": check_shuffle, "dedupe": check_dedupe, "group": check_group, "join": check_join, "convert": check_convert}


def ordered(oracle, prefix, key):
    """The columns of a key by names with this prefix, and what DuckDB orders by."""
    columns = {f"{prefix}{at}": column["column"] for at, column in enumerate(key)}
    terms = [term for name, column in zip(columns, key) for term in order_terms(name, resolve(oracle.types, column["column"])[2], column)]
    return columns, terms


def lengths_differ(written, size, lengths):
    """How many files there are, and how many rows are in each: as many in all ("even"), or as many as it takes until there are none left ("full")."""
    [(unit, of)] = size.items()
    if unit == "Bytes":
        return None if written.paths else "no file"
    rows = sum(written.lengths)
    count = of if unit == "Count" else max(1, -(-rows // of))
    if len(written.lengths) != count:
        return f"{len(written.lengths)} files, not {count}"
    is_full = lengths != "full" or written.lengths == [min(of, rows - of * at) for at in range(count)]
    is_even = lengths != "even" or max(written.lengths) - min(written.lengths) <= 1
    return None if is_full and is_even else f"files of {written.lengths} rows"


def order_differs(oracle, written, ids, key):
    found = written.ids
    if found.equals(ids):
        return None
    if len(found) != len(ids):
        missing, more = sorted(set(ids.to_pylist()) - set(found.to_pylist()))[:5], sorted(set(found.to_pylist()) - set(ids.to_pylist()))[:5]
        return f"other rows: {len(found)}, not {len(ids)}; DuckDB alone has {missing}, the output alone {more}"
    at = pc.index(pc.not_equal(found, ids), True).as_py()
    expected = oracle.all_rows()
    tops = [resolve(oracle.types, column["column"])[0] for column in key]
    row = lambda of: [compare.shown(expected.column(name).combine_chunks(), of) for name in tops]  # noqa: E731
    here, there = found[at].as_py(), ids[at].as_py()
    return f"row {at} of the output is row {here} of the input, {row(here)}; DuckDB has row {there} there, {row(there)}"


def rows_differ(oracle, written, folders=()):
    """Compares types and values with those of the input, bit by bit, and with what DuckDB reads; columns that are folders are in no file."""
    expected = oracle.expected(written.form)
    if folders and not written.paths:
        return None
    expected = expected.drop_columns(list(folders))
    if written.rows.column_names != expected.column_names:
        return f"columns {written.rows.column_names}, not {expected.column_names}"
    for name in expected.column_names:
        one, other = written.rows.column(name).combine_chunks(), expected.column(name).combine_chunks().take(written.ids)
        if not compare.same_type(one.type, other.type):
            return f"column {name} is {one.type}, not {other.type}"
        if written.form in ("csv", "tsv") and pa.types.is_floating(one.type):
            # There is one NaN in text.
            one, other = [pc.if_else(pc.is_nan(side), pa.scalar(float("nan"), side.type), side) for side in (one, other)]
        if found := compare.difference(name, one, other):
            return f"found and expected: {found}"
    return duckdb_reads(oracle, written) if written.form == "parquet" else None


def duckdb_reads(oracle, written):
    """Whether DuckDB reads from the output what pyarrow does."""
    rows = files.for_duckdb(written.rows)
    oracle.connection.register("written", rows)
    unequal = " or ".join(f"a.{quoted(name)} is distinct from b.{quoted(name)}" for name in rows.column_names)
    # Python shows some letters of a path otherwise than they are.
    paths = ", ".join(literal(path) for path in written.paths)
    count = oracle.connection.execute(
        f"select count(*) from read_parquet([{paths}], hive_partitioning = false) as a positional join written as b where {unequal}").fetchall()[0][0]
    return f"DuckDB reads {count} rows of the output otherwise than pyarrow" if count else None

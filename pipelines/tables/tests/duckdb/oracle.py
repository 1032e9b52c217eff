"""Makes random tables, and says whether what was done with them is what DuckDB does: a question a line, as JSON, and an answer a line.

{"make": {"seed": 7, "folder": "..."}}: files in that folder; which, with which `--schema`, and which columns can be keys.
{"check": {"verb": "sort", ...}}: whether the output of a verb over the table that was made last is right; how it differs otherwise.
"""

import json
import os
import random
import sys
import traceback

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import compare
import files
import values


class Oracle:
    def __init__(self):
        self.connection = duckdb.connect(config={"threads": 1})
        self.table = None

    def make(self, seed, folder):
        self.table = files.Table(random.Random(seed), folder)
        types = {"id": pa.int64()} if self.table.refused else self.table.unified()
        rows = sum(file.truth.num_rows for file in self.table.files)
        keys = [path for name, of in types.items() for path in key_paths(name, of)]
        return {"inputs": [file.path for file in self.table.files], "schema": self.table.schema, "rows": rows, "keys": keys, "refused": self.table.refused,
                "mode": self.table.mode, "columns": {name: str(of) for name, of in types.items()}}

    def check(self, verb, output, **options):
        paths = [os.path.join(output, name) for name in sorted(os.listdir(output)) if name.endswith(".parquet")]
        return {"differs": VERBS[verb](self, paths, **options)}

    def written(self, paths):
        """What the output has, by pyarrow, in the order of its files."""
        return pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths])

    def expected(self):
        """All rows of the input in its order, with the types that the output has."""
        types = self.table.unified()
        tables = []
        for file in self.table.files:
            rows = file.truth.num_rows
            columns = [conformed(file.truth.column(name).combine_chunks(), of) if name in file.truth.column_names else pa.nulls(rows, of)
                       for name, of in types.items()]
            tables.append(pa.table(dict(zip(types, columns))))
        return pa.concat_tables(tables)

    def relation(self, file, name, path, of):
        """How DuckDB gets at a key column in a file, as a value of that type."""
        here = file.truth.schema
        if here.get_field_index(name) < 0:
            return "null"
        found, expression = here.field(name).type, quoted(name)
        for part in path:
            if pa.types.is_null(found) or found.get_field_index(part) < 0:
                return "null"
            found, expression = found.field(part).type, f"struct_extract({expression}, {literal(part)})"
        if pa.types.is_null(found):
            return "null"
        return expression if pa.types.is_nested(of) else f"cast({expression} as {duckdb_type(of)})"

    def source(self, file):
        """A file as DuckDB reads it; it reads no Arrow IPC, so it is given these rows."""
        if file.form == "parquet":
            return f"read_parquet({literal(file.path)})"
        if file.form == "text":
            columns = ", ".join(f"{literal(field.name)}: {literal(duckdb_type(field.type))}" for field in file.truth.schema)
            end = {"\n": r"\n", "\r\n": r"\r\n"}[file.text.end]
            return (f"read_csv({literal(file.path)}, auto_detect = false, header = true, delim = {literal(file.text.delimiter)}, quote = '\"', "
                    f"escape = '\"', nullstr = '', allow_quoted_nulls = false, new_line = '{end}', columns = {{{columns}}})")
        name = f"rows{self.table.files.index(file)}"
        self.connection.register(name, files.for_duckdb(file.truth))
        return name

    def sorted_ids(self, key):
        """The rows in the order that DuckDB gives them, rows of one key in that of the input."""
        types = self.table.unified()
        resolved = [resolve(types, column["column"]) for column in key]
        terms = [term for at, (column, (_, _, of)) in enumerate(zip(key, resolved)) for term in order_terms(f"k{at}", of, column)]
        selects = []
        for file in self.table.files:
            keys = [f"{self.relation(file, name, path, of)} as k{at}" for at, (name, path, of) in enumerate(resolved)]
            selects.append(f"select {', '.join(['id', *keys])} from {self.source(file)}")
        query = f"select id from ({' union all '.join(selects)}) order by {', '.join([*terms, 'id'])}"
        return self.connection.sql(query).to_arrow_table().column("id").combine_chunks()


def check_sort(oracle, paths, key, files):
    """Parts in the order of the key; rows, types and bits are those of the input."""
    if len(paths) != files:
        return f"{len(paths)} files, not {files}"
    written = oracle.written(paths)
    ids = oracle.sorted_ids(key)
    found = written.column("id").combine_chunks()
    if not found.equals(ids):
        return order_differs(oracle, found, ids, key)
    return rows_differ(oracle, written, ids) or duckdb_reads(oracle, paths, written)


def order_differs(oracle, found, ids, key):
    if sorted(found.to_pylist()) != sorted(ids.to_pylist()):
        return f"other rows: {len(found)}, not {len(ids)}"
    at = pc.index(pc.not_equal(found, ids), True).as_py()
    expected = oracle.expected()
    tops = [resolve(oracle.table.unified(), column["column"])[0] for column in key]
    row = lambda of: [compare.shown(expected.column(name).combine_chunks(), of) for name in tops]  # noqa: E731
    here, there = found[at].as_py(), ids[at].as_py()
    return f"row {at} of the output is row {here} of the input, {row(here)}; DuckDB has row {there} there, {row(there)}"


def rows_differ(oracle, written, ids):
    """Compares values, with the input's at these places."""
    expected = oracle.expected()
    if written.column_names != expected.column_names:
        return f"columns {written.column_names}, not {expected.column_names}"
    for name in expected.column_names:
        one, other = written.column(name).combine_chunks(), expected.column(name).combine_chunks().take(ids.cast(pa.int64()))
        if not compare.same_type(one.type, other.type):
            return f"column {name} is {one.type}, not {other.type}"
        if found := compare.difference(name, one, other):
            return f"found and expected: {found}"
    return None


def duckdb_reads(oracle, paths, written):
    """Whether DuckDB reads from the output what pyarrow does."""
    written = files.for_duckdb(written)
    oracle.connection.register("written", written)
    unequal = " or ".join(f"a.{quoted(name)} is distinct from b.{quoted(name)}" for name in written.column_names)
    count = oracle.connection.execute(
        f"select count(*) from read_parquet({paths}) as a positional join written as b where {unequal}").fetchall()[0][0]
    return f"DuckDB reads {count} rows of the output otherwise than pyarrow" if count else None


VERBS = {"sort": check_sort}


def conformed(column, of):
    """The column with another type, all of whose values that one has."""
    if column.type.equals(of):
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), of)
    return column.cast(of)


def key_paths(name, of):
    """What can be a key of a column: itself, or fields of structs in it. DuckDB has no decimals of more than 38 digits."""
    paths = [name] if is_ordered(of) else []
    if pa.types.is_struct(of):
        paths += [f"{name}.{path}" for field in of for path in key_paths(field.name, field.type)]
    return paths


def is_ordered(of):
    if pa.types.is_map(of) or pa.types.is_decimal256(of):
        return False
    if pa.types.is_struct(of):
        return all(is_ordered(field.type) for field in of)
    return is_ordered(of.value_type) if pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_fixed_size_list(of) else True


def resolve(types, column):
    """The column of the table that a key is in, the names of fields on the way down, and the type."""
    for name, of in types.items():
        if name == column:
            return name, [], of
    for name, of in types.items():
        if column.startswith(name + ".") and pa.types.is_struct(of):
            inside, path, found = resolve({field.name: field.type for field in of}, column[len(name) + 1 :])
            return name, [inside, *path], found
    raise KeyError(column)


def order_terms(name, of, column):
    """What DuckDB orders by. Nulls inside lists and structs stand where those of the column do, which DuckDB has otherwise."""
    direction, nulls = ("desc" if column["descending"] else "asc"), column["nulls"].lower()
    if not pa.types.is_nested(of):
        return [f"{name} {direction} nulls {nulls}"]
    nulls_are_large = (nulls == "last") != column["descending"]
    is_null = f"({name} is null) {'asc' if nulls == 'last' else 'desc'}"
    return [is_null, f"{without_nulls(name, of, nulls_are_large)} {direction}"]


def without_nulls(expression, of, nulls_are_large, depth=0):
    """A value that orders as this one does and has no null in it."""
    types = pa.types
    flag = f"({expression} is {'' if nulls_are_large else 'not '}null)"
    inside = lambda expression, of: without_nulls(expression, of, nulls_are_large, depth + 1)  # noqa: E731
    if types.is_struct(of):
        fields = [inside(f"struct_extract({expression}, {literal(field.name)})", field.type) for field in of]
        values_of = [f"f{at} := {field}" for at, field in enumerate(fields)]
        return f"struct_pack(n := {flag}, {', '.join(values_of)})"
    if types.is_nested(of):
        element = inside(f"e{depth}", of.value_type)
        return f"struct_pack(n := {flag}, v := coalesce(list_transform({expression}, lambda e{depth}: {element}), []))"
    return f"struct_pack(n := {flag}, v := coalesce({expression}, {default(of)}))"


def default(of):
    return f"cast({literal('00:00:00') if pa.types.is_time(of) else literal('1970-01-01') if pa.types.is_temporal(of) else literal('') if is_bytes(of) else '0'} as {duckdb_type(of)})"


def is_bytes(of):
    return "string" in str(of) or "binary" in str(of)


def duckdb_type(of):
    types = pa.types
    if types.is_decimal(of):
        return f"decimal({of.precision}, {of.scale})"
    if types.is_timestamp(of):
        # Of instants DuckDB has microseconds only, and so have those of the tables.
        return "timestamptz" if of.tz else {"s": "timestamp_s", "ms": "timestamp_ms", "us": "timestamp", "ns": "timestamp_ns"}[of.unit]
    if types.is_integer(of):
        name = {8: "tinyint", 16: "smallint", 32: "integer", 64: "bigint"}[of.bit_width]
        return name if types.is_signed_integer(of) else "u" + name
    if types.is_null(of):
        return "integer"
    for is_type, name in [(types.is_boolean, "boolean"), (types.is_float16, "float"), (types.is_float32, "float"), (types.is_float64, "double"),
                          (types.is_date, "date"), (types.is_time, "time"), (types.is_duration, "bigint")]:
        if is_type(of):
            return name
    return "varchar" if "string" in str(of) else "blob"


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def main():
    oracle = Oracle()
    for line in sys.stdin:
        [(what, arguments)] = json.loads(line).items()
        try:
            answer = {"make": oracle.make, "check": oracle.check}[what](**arguments)
        except Exception:
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

"""Makes random tables, and says whether what was done with them is what DuckDB does: a question a line, as JSON, and an answer a line.

{"make": {"seed": 7, "folder": "..."}}: files in that folder; which, with which `--schema`, `--where` and `--select`, and which columns can be keys.
{"join": {"seed": 7, "folder": "..."}}: the files of a second table, the same said of it, and pairs of columns by which the table that was made last is joined with it; nothing, where there are none.
{"conditions": {"seed": 7, "count": 10}}: so many conditions over the rows of the table that was made last, as `--where` and SQL have them, and the ids of those that meet each.
{"check": {"verb": "sort", ...}}: whether the output of a verb over the table that was made last is right; how it differs otherwise.
"""

import json
import random
import sys
import traceback

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import conditions
import files
import joins
import values
from sql import duckdb_type, key_paths, literal, quoted, resolve
from verbs import VERBS, Written


class Oracle:
    def __init__(self, connection=None):
        self.connection = connection or duckdb.connect(config={"threads": 1})
        self.table = self.select = self.condition = self.right = None
        self.types = {}

    def make(self, seed, folder):
        rng = random.Random(seed)
        self.right = None
        return self.drawn(rng, files.Table(rng, folder))

    def join(self, seed, folder):
        rng, columns = random.Random(f"join {seed}"), joins.columns(self)
        if not columns:
            return None
        pairs = joins.drawn(rng, columns)
        shared = [files.Column(name, values.family_with(rng, columns[left]), joins.pool(rng, self, left)) for left, name in pairs]
        self.right = Oracle(self.connection)
        right = self.right.drawn(rng, files.Table(rng, folder, shared, joins.rows_max(self, pairs[0][0])), [name for _, name in pairs])
        return {"right": right, "on": [{"left": left, "right": name} for left, name in pairs]}

    def drawn(self, rng, table, needed=()):
        """What is read of a table, these columns in any case, and what is said of it."""
        self.table = table
        self.types = {"id": pa.int64()} if self.table.refused else self.table.unified()
        self.select = self.condition = None
        if not self.table.refused:
            if rng.random() < 0.25:
                self.select = ["id", *(name for name in self.types if name != "id" and (rng.random() < 0.6 or name in needed))]
                rng.shuffle(self.select)
            if rng.random() < 0.4:
                self.condition = conditions.drawn(rng, self.types, self.all_rows())
        columns = {name: self.types[name] for name in self.select or self.types}
        keys = [path for name, of in columns.items() for path in key_paths(name, of)]
        return {"inputs": [file.path for file in self.table.files], "schema": self.table.schema, "keys": keys, "refused": self.table.refused,
                "rows": sum(file.truth.num_rows for file in self.table.files), "filter": self.condition and self.condition.text, "select": self.select,
                "texts": all(map(values.has_text, columns.values())), "mode": self.table.mode,
                "columns": {name: str(of) for name, of in self.types.items()},
                "folder": self.table.folder, "folders": [] if self.table.refused else self.folders(columns)}

    def conditions(self, seed, count):
        rng, rows, drawn = random.Random(f"conditions {seed}"), self.all_rows(), []
        for _ in range(count):
            self.condition = conditions.drawn(rng, self.types, rows, has_exponents=False)
            drawn.append({"text": self.condition.text, "ids": sorted(self.ids(f"select id from {self.rows_of({})}").to_pylist())})
        return drawn

    def folders(self, columns):
        """The columns whose values are folders, not too many of them."""
        types, rows = pa.types, self.all_rows()
        is_folder = lambda of: (types.is_boolean(of) or types.is_integer(of) or types.is_date(of) or types.is_timestamp(of) or types.is_decimal128(of)  # noqa: E731
                                or types.is_string(of) or types.is_large_string(of))
        # An empty text makes no folder.
        makes_some = lambda name: pc.count_distinct(rows.column(name), mode="all").as_py() <= 25 and "" not in rows.column(name).to_pylist()  # noqa: E731
        # Of names DuckDB reads no `%22` as what it stands for.
        return [name for name, of in columns.items() if name != "id" and '"' not in name and is_folder(of) and makes_some(name)]

    def check(self, verb, output, form, rows, **options):
        written = Written(output, form, self.expected(form).schema)
        if rows is not None and rows != written.rows.num_rows:
            return {"differs": f"{written.rows.num_rows} rows; the job said {rows}"}
        return {"differs": VERBS[verb](self, written, **options)}

    def all_rows(self, form="parquet"):
        """All rows of the input in its order, with the types that an output of the format has."""
        types = self.table.unified(form)
        tables = []
        for file in self.table.files:
            rows = file.truth.num_rows
            columns = [values.conformed(file.truth.column(name).combine_chunks(), of) if name in file.truth.column_names else pa.nulls(rows, of)
                       for name, of in types.items()]
            tables.append(pa.table(dict(zip(types, columns))))
        return pa.concat_tables(tables)

    def expected(self, form):
        """The columns of all rows that are selected."""
        rows = self.all_rows(form)
        return rows.select(self.select) if self.select else rows

    def relation(self, file, name, path, of):
        """How DuckDB gets at a column in a file, as a value of that type."""
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
        if file.form == "parquet" and file.is_in_folders:
            return f"read_parquet({literal(file.path)}, hive_partitioning = true, hive_types_autocast = false)"
        if file.form == "parquet":
            return f"read_parquet({literal(file.path)}, hive_partitioning = false)"
        if file.form == "text":
            columns = ", ".join(f"{literal(field.name)}: {literal(duckdb_type(field.type))}" for field in file.truth.schema)
            end = {"\n": r"\n", "\r\n": r"\r\n"}[file.text.end]
            return (f"read_csv({literal(file.path)}, auto_detect = false, header = true, delim = {literal(file.text.delimiter)}, quote = '\"', "
                    f"escape = '\"', nullstr = '', allow_quoted_nulls = false, new_line = '{end}', columns = {{{columns}}})")
        name = f"rows{self.table.files.index(file)}"
        self.connection.register(name, files.for_duckdb(file.truth))
        return name

    def rows_of(self, columns):
        """A query of the rows that meet the condition: `id`, and columns under these names.

        Files are read into a table before: from a file DuckDB leaves out row groups whose statistics, which lack NaNs, say that all values are small.
        """
        if self.condition:
            columns = {**columns, **self.condition.columns}
        resolved = {name: resolve(self.types, path) for name, path in columns.items()}
        selects = []
        for file in self.table.files:
            here = [f"{self.relation(file, *at)} as {name}" for name, at in resolved.items()]
            selects.append(f"select {', '.join(['id', *here])} from {self.source(file)}")
        self.connection.execute(f"create or replace temp table all_rows as {' union all '.join(selects)}")
        return f"(select * from all_rows where {self.condition.sql if self.condition else 'true'})"

    def ids(self, query):
        # Where no file has a row, it may be text.
        return self.connection.sql(query).to_arrow_table().column("id").combine_chunks().cast(pa.int64())


def main():
    oracle = Oracle()
    for line in sys.stdin:
        [(what, arguments)] = json.loads(line).items()
        try:
            answer = {"make": oracle.make, "join": oracle.join, "conditions": oracle.conditions, "check": oracle.check}[what](**arguments)
        except Exception:
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

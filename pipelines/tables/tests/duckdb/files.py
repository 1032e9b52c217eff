"""Random tables in files: Parquet by pyarrow and by DuckDB, also in folders of values, text, JSON lines, Arrow IPC."""

import json
import os
import re

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

import values

NAMES = ["c", "name", "Größe", "with space", 'q"uote', "a.b", "select", "ts"]


class File:
    """A file, and its rows as exobus has to see them."""

    def __init__(self, path, form, truth, text=None, is_in_folders=False):
        self.path, self.form, self.truth, self.text, self.is_in_folders = path, form, truth, text, is_in_folders


class Column:
    """`pool`: values of which some are in it, of a column of another table."""

    def __init__(self, name, family, pool=None):
        self.name, self.family, self.pool = name, family, pool


class Table:
    """Files that are one table. `schema`: what `--schema` has to say; `refused`: the column for which they are none; `folder`: what is to be named, where files are in folders of values.

    `shared`: columns that it has besides, of the types of their families and no others; `rows_max`: how many rows it has at most, where it has such columns.
    """

    def __init__(self, rng, folder, shared=(), rows_max=None):
        self.files, self.schema, self.refused, self.folder = [], None, None, None
        if shared:
            has_text = all(values.is_named_in_text(of) for column in shared for of in column.family)
            self.mode = rng.choice(["parquet", "parquet", "arrow", *(["text"] if has_text else [])])
        else:
            self.mode = rng.choices(["parquet", "duckdb", "text", "arrow", "mixed", "json", "hive"], [40, 15, 15, 10, 20, 15, 10])[0]
        forms = {"mixed": ["parquet", "text", "arrow"]}.get(self.mode, [self.mode])
        infers = self.mode in ("text", "json") and not shared and rng.random() < 0.6
        inferred = values.inferred_of_json if self.mode == "json" else values.inferred_of_text
        kinds = {True: inferred if infers else values.of_text, False: values.family}[self.mode in ("text", "mixed", "json")]
        names = [f"{name}{at}" for at, name in enumerate(rng.choices(NAMES, k=rng.randint(1, 7)))]
        columns = [Column(name, kinds(rng)) for name in names]
        if self.mode in ("duckdb", "hive"):
            columns = [column for column in columns if all(written_by_duckdb(of) for of in column.family)]
        columns = [column for column in columns if all(column.name != other.name for other in shared)] + list(shared)
        if self.mode == "hive":
            self.folder, self.files = folder, in_folders(rng, folder, columns)
            return
        count = rng.choice([1, 1, 2, 3, 5])
        uneven = count > 1 and rng.random() < 0.5
        next_id, drafts = 0, []
        for at in range(count):
            rows = rng.choice([0, 1, 7, rng.randint(2, 60), rng.randint(50, 900)])
            rows = rows if rows_max is None else min(rows, rows_max // count + 1)
            # Without a row of JSON there is no column.
            rows = max(rows, 1) if self.mode == "json" and at == 0 else rows
            here = [column for column in columns if not uneven or rng.random() < 0.8 or at == 0 and column.pool is not None]
            rng.shuffle(here) if uneven else None
            arrays = {"id": pa.array(range(next_id, next_id + rows), pa.int64())}
            for column in here:
                of = rng.choice(column.family) if uneven else column.family[0]
                nulls = rng.choice([0, 0.1, 0.6, 1.0 if rng.random() < 0.2 else 0])
                array = values.array(rng, of, rows, nulls)
                arrays[column.name] = array if column.pool is None else values.with_some_of(rng, array, column.pool)
            next_id += rows
            drafts.append((at, rng.choice(forms), pa.table(arrays)))
        if not shared and self.mode in ("parquet", "arrow") and count > 1 and rng.random() < 0.2:
            self.refused, types = "never one", values.misfits(rng)
            rng.shuffle(both := list(types))
            for place, of in zip(rng.sample(range(count), 2), both):
                at, form, table = drafts[place]
                drafts[place] = at, form, table.append_column(self.refused, values.array(rng, of, table.num_rows, 0.3))
        if self.mode == "json":
            tables = [finite(table) for _, _, table in drafts]
            types = types_of_json(tables, infers)
            self.schema = None if infers else ", ".join(schema_text(name, of) for name, of in types.items())
            self.files = [json_lines(rng, os.path.join(folder, f"f{at}"), table, types) for at, table in enumerate(tables)]
            return
        texts = [table for _, form, table in drafts if form == "text"]
        types = types_of_text(texts, infers) if texts else {}
        if texts and not infers:
            self.schema = ", ".join(schema_text(name, of) for name, of in types.items())
        for at, form, table in drafts:
            stem = os.path.join(folder, f"f{at}")
            self.files.append({"parquet": parquet, "duckdb": by_duckdb, "text": text, "arrow": arrow}[form](rng, stem, table, types))

    def unified(self, form="parquet"):
        """Names and types of the columns of all files, as they are in an output of this format."""
        types = {}
        for file in self.files:
            for field in file.truth.schema:
                types[field.name] = values.unified(types[field.name], field.type) if field.name in types else field.type
        return {name: values.stored(of, form) for name, of in types.items()}


def seen(table, form):
    """The rows with the types that exobus sees."""
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        of = values.seen_in(form, table.schema.field(name).type)
        columns[name] = column if column.type.equals(of) else column.cast(of)
    return pa.table(columns)


def required(rng, table):
    """Some columns without nulls say that they have none."""
    fields = [field.with_nullable(False) if table.column(field.name).null_count == 0 and not pa.types.is_null(field.type) and rng.random() < 0.2
              else field for field in table.schema]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields, metadata={"made": "by a test"} if rng.random() < 0.3 else None))


def pieces(rng, table):
    """The rows in some pieces, of which some have none."""
    at, size = 0, rng.choice([1, 10, 64, 300, 10_000])
    size = max(size, table.num_rows // 40)
    while at < table.num_rows:
        if rng.random() < 0.1:
            yield table.slice(at, 0)
        yield table.slice(at, size)
        at += size


def parquet(rng, stem, table, _):
    path = stem + ".parquet"
    has_duration = any("duration" in str(field.type) for field in table.schema)
    is_noted = has_duration or rng.random() < 0.7
    dictionary = rng.random() < 0.6
    plain_times = all(field.type.tz is None for field in table.schema if pa.types.is_timestamp(field.type))
    int96 = not is_noted and plain_times and rng.random() < 0.3 and not any(pa.types.is_nested(field.type) for field in table.schema)
    options = dict(
        compression=rng.choice(["none", "snappy", "gzip", "zstd", "lz4"]), data_page_version=rng.choice(["1.0", "2.0"]),
        use_dictionary=dictionary, write_statistics=rng.random() < 0.7, store_schema=is_noted,
        data_page_size=rng.choice([64, 1000, 1 << 20]), write_batch_size=rng.choice([5, 100, 1024]),
        write_page_index=rng.random() < 0.3, write_page_checksum=rng.random() < 0.3, use_deprecated_int96_timestamps=int96,
    )
    if not dictionary and not int96 and rng.random() < 0.6:
        options["column_encoding"] = {field.name: encoding for field in table.schema if (encoding := encoding_of(rng, field.type))}
    with pq.ParquetWriter(path, (table := required(rng, table)).schema, **options) as writer:
        for piece in pieces(rng, table):
            writer.write_table(piece, row_group_size=max(piece.num_rows, 1))
    rows = seen(table, "parquet")
    if not is_noted:
        # Nothing but Parquet says what columns are.
        own = pq.read_schema(path)
        rows = pa.table({name: rows.column(name).cast(values.seen_in("parquet", int96_as_ns(own.field(name).type, int96))) for name in rows.column_names})
    return File(path, "parquet", rows)


def int96_as_ns(of, int96):
    return pa.timestamp("ns") if int96 and pa.types.is_timestamp(of) else of


def encoding_of(rng, of):
    types = pa.types
    if types.is_integer(of) or types.is_timestamp(of):
        return rng.choice([None, "DELTA_BINARY_PACKED", "PLAIN"] if of.bit_width >= 32 else [None, "PLAIN"])
    if types.is_float32(of) or types.is_float64(of):
        return rng.choice([None, "BYTE_STREAM_SPLIT"])
    if types.is_string(of) or types.is_binary(of):
        return rng.choice([None, "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
    if types.is_boolean(of):
        return rng.choice([None, "RLE"])
    return None


def written_by_duckdb(of):
    """Whether DuckDB writes the type as Parquet has it, and not another one."""
    types = pa.types
    if types.is_nested(of):
        return all(written_by_duckdb(of.field(at).type) for at in range(of.num_fields)) and not types.is_fixed_size_list(of)
    is_other = types.is_float16(of) or types.is_duration(of) or types.is_date64(of) or types.is_null(of) or types.is_decimal256(of)
    return not is_other and not (types.is_time(of) and of.unit == "ns")


def by_duckdb(rng, stem, table, _):
    path, connection = stem + ".parquet", duckdb.connect(config={"threads": 1})
    connection.register("made", for_duckdb(table))
    options = [f"compression {rng.choice(['uncompressed', 'snappy', 'gzip', 'zstd', 'lz4', 'lz4_raw'])}", f"row_group_size {rng.choice([2048, 4096])}"]
    if rng.random() < 0.4:
        options.append("dictionary_size_limit 1")
    for version in rng.choice([["v1"], ["v2", "v1"]]):
        connection.sql(f"copy (select * from made) to '{path}' (format parquet, parquet_version {version}, {', '.join(options)})")
        try:
            pq.read_table(path)
            break
        except OSError:
            # Deltas of 32-bit integers that do not fit 32 bits: DuckDB 2.0 writes them, and no other reader takes them.
            assert version == "v2"
    connection.close()
    # Types may be others than they were: what pyarrow reads is what is there.
    return File(path, "parquet", seen(pq.read_table(path), "parquet"))


def for_duckdb(table):
    """The table without types that DuckDB does not take from Arrow."""
    def flat(of):
        types = pa.types
        if types.is_duration(of):
            return pa.int64()
        if types.is_float16(of):
            return pa.float32()
        if types.is_fixed_size_list(of):
            return pa.list_(of.value_type)
        return of
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        column = pc.cast(column, column.type.value_type) if pa.types.is_dictionary(column.type) else column
        of = values.mapped(column.type, flat)
        if not pa.types.is_decimal256(of):
            columns[name] = column if column.type.equals(of) else column.cast(of)
    return pa.table(columns)


def in_folders(rng, folder, columns):
    """Files of DuckDB in folders of the values of some columns, which are behind the others; rows have the numbers in which they are read, folder by folder in the order of names."""
    rows, keys = rng.choice([1, 7, rng.randint(2, 60), rng.randint(50, 900)]), rng.sample(["day", "city", "n", "is"], rng.choice([1, 1, 2]))
    arrays = {"id": pa.array(range(rows), pa.int64())}
    # Of views pyarrow takes no rows.
    arrays |= {column.name: values.array(rng, column.family[0], rows, rng.choice([0, 0.1, 0.6])) for column in columns if not pa.types.is_string_view(column.family[0])}
    for key in keys:
        pool = {"day": [18_000, 18_031, -5], "city": [one for one in values.TEXTS if one], "n": [0, -7, 10, 2**40], "is": [True, False]}[key]
        pool = rng.sample(pool, rng.randint(1, min(len(pool), 5))) + ([None] if rng.random() < 0.5 else [])
        of = {"day": pa.date32(), "city": pa.string(), "n": pa.int64(), "is": pa.bool_()}[key]
        arrays[key] = pa.array([rng.choice(pool) for _ in range(rows)], of)
    table = pa.table(arrays)
    # In the order of folders, which DuckDB makes of the values.
    ids = pa.concat_arrays([pq.read_table(path, columns=["id"], partitioning=None).column("id").combine_chunks() for path in written_in_folders(folder, table, keys)])
    table = table.take(ids).set_column(0, "id", arrays["id"])
    files = []
    for path in written_in_folders(folder, table, keys):
        read = pq.read_table(path, partitioning=None)
        if not (ids := read.column("id").combine_chunks()).equals(ids.sort()):
            # DuckDB does not always write rows as they came.
            pq.write_table(read := read.sort_by("id"), path)
        truth = seen(read, "parquet")
        here = truth.column("id").combine_chunks()
        for key in keys:
            column = table.column(key)
            # What nobody has a value of is text.
            column = pa.nulls(len(column), pa.string()) if column.null_count == len(column) else column
            truth = truth.append_column(key, column.take(here))
        files.append(File(path, "parquet", truth, is_in_folders=True))
    return files


def written_in_folders(folder, table, keys):
    """The files that DuckDB makes of a table, in the order of their names."""
    connection = duckdb.connect(config={"threads": 1})
    connection.register("made", for_duckdb(table))
    by = ", ".join(f'"{key}"' for key in keys)
    connection.sql(f"copy (select * from made) to '{folder}' (format parquet, partition_by ({by}), overwrite true)")
    connection.close()
    return below(folder)


def below(folder):
    """All files in a folder and in those in it, in the order of names."""
    found = []
    for name in sorted(os.listdir(os.fsencode(folder))):
        path = os.path.join(os.fsencode(folder), name)
        found += below(path) if os.path.isdir(path) else [os.fsdecode(path)]
    return found


def encoded(rng, column):
    """The same values, written down in another way that Arrow has."""
    of, types = column.type, pa.types
    if rng.random() < 0.6 or of.equals(pa.null()):
        return column
    column = column.combine_chunks()
    if types.is_list(of):
        try:
            return column.cast(pa.list_view(of.value_type))
        except pa.ArrowNotImplementedError:
            # Of some elements pyarrow makes none.
            return column
    if types.is_string(of):
        return column.cast(pa.string_view()) if rng.random() < 0.5 else column.dictionary_encode()
    if types.is_binary(of):
        return column.cast(pa.binary_view())
    is_plain = types.is_integer(of) or types.is_timestamp(of) or types.is_date(of) or types.is_decimal128(of) or types.is_floating(of)
    return column.dictionary_encode() if is_plain else column


def arrow(rng, stem, table, _):
    path = stem + ".arrow"
    options = pa.ipc.IpcWriteOptions(compression=rng.choice([None, "lz4", "zstd"]), unify_dictionaries=True)
    rows = seen(table, "arrow")
    table = pa.table({name: column if name == "id" else encoded(rng, column) for name, column in zip(table.column_names, table.columns)})
    table = required(rng, table)
    make = rng.choice([pa.ipc.new_file, pa.ipc.new_stream])
    with make(path, table.schema, options=options) as writer:
        for piece in pieces(rng, table):
            writer.write_table(piece)
    return File(path, "arrow", rows)


# Text.


class Text:
    """How a file is written as text."""

    def __init__(self, rng, stem):
        self.delimiter, extension = rng.choice([(",", ".csv"), (",", ".csv"), ("\t", ".tsv")])
        self.packing = rng.choice(["", "", "", ".gz", ".zst"])
        self.path = stem + extension + self.packing
        self.end = rng.choice(["\n", "\n", "\r\n"])
        self.quotes = rng.choice([0.0, 0.0, 0.5, 1.0])
        self.mark, self.ends_whole = rng.random() < 0.1, rng.random() < 0.8


def text(rng, stem, table, types):
    how = Text(rng, stem)
    columns = [texts(column) for column in table.columns]

    def field(one):
        if one is None:
            return ""
        special = one == "" or any(mark in one for mark in (how.delimiter, '"', "\n", "\r"))
        return '"' + one.replace('"', '""') + '"' if special or rng.random() < how.quotes else one

    lines = [how.delimiter.join(map(field, table.column_names))]
    lines += [how.delimiter.join(field(column[row]) for column in columns) for row in range(table.num_rows)]
    whole = how.end.join(lines) + (how.end if how.ends_whole else "")
    whole = (b"\xef\xbb\xbf" if how.mark else b"") + whole.encode()
    with pa.CompressedOutputStream(how.path, {".gz": "gzip", ".zst": "zstd"}[how.packing]) if how.packing else open(how.path, "wb") as out:
        out.write(whole)
    rows = {name: read_as(column, types[name]) for name, column in zip(table.column_names, table.columns)}
    return File(how.path, "text", pa.table(rows), how)


# JSON lines.


def finite(table):
    """The table without floats that JSON has not."""
    def column(one):
        one = one.combine_chunks()
        return pc.if_else(pc.is_finite(one), one, pa.scalar(None, one.type)) if pa.types.is_floating(one.type) else one
    return pa.table({name: column(table.column(name)) for name in table.column_names})


def types_of_json(tables, infers):
    """Names and types of the columns of all files: those that are met, in the order of rows, and then those that are only said."""
    met = list(dict.fromkeys(name for table in tables if table.num_rows for name in table.column_names))
    if not infers:
        types = types_of_text(tables, False)
        return {name: types[name] for name in [*met, *(name for name in types if name not in met)]}
    columns = lambda name: [one for table in tables if name in table.column_names for one in table.column(name).to_pylist()]  # noqa: E731
    return {name: inferred(columns(name)) for name in met}


def inferred(some):
    """The type of values of JSON, of which there is one."""
    some = [one for one in some if one is not None]
    if not some:
        return pa.string()
    if isinstance(some[0], dict):
        return pa.struct([(name, inferred([one[name] for one in some])) for name in some[0]])
    if isinstance(some[0], list):
        return pa.list_(inferred([one for each in some for one in each]))
    return {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}[type(some[0])]


def json_lines(rng, stem, table, types):
    packing = rng.choice(["", "", "", ".gz", ".zst"])
    path, end = stem + rng.choice([".jsonl", ".jsonl", ".ndjson"]) + packing, rng.choice(["\n", "\n", "\r\n"])
    between, is_ascii, columns = rng.choice([(",", ":"), (", ", ": "), (" ,\t", " :  ")]), rng.random() < 0.3, [json_cells(rng, column) for column in table.columns]

    def line(row):
        cells = [(name, column[row]) for name, column in zip(table.column_names, columns)]
        # Where a key is met first decides where its column is.
        cells = [(name, cell) for name, cell in cells if row == 0 or cell != "null" or rng.random() < 0.5]
        return "{" + between[0].join(json.dumps(name, ensure_ascii=is_ascii) + between[1] + cell for name, cell in cells) + "}" + end

    lines = [line(row) + (end if rng.random() < 0.05 else "") for row in range(table.num_rows)]
    whole = "".join(lines).removesuffix(end if rng.random() < 0.3 else "")
    whole = (b"\xef\xbb\xbf" if rng.random() < 0.1 else b"") + whole.encode()
    with pa.CompressedOutputStream(path, {".gz": "gzip", ".zst": "zstd"}[packing]) if packing else open(path, "wb") as out:
        out.write(whole)
    rows = table.num_rows
    columns = {name: json_truth(table.column(name), of) if name in table.column_names else pa.nulls(rows, of) for name, of in types.items()}
    return File(path, "json", pa.table(columns))


def json_cells(rng, column):
    """The values of a column as they are written."""
    of, types = column.type, pa.types
    if types.is_decimal(of):
        return ["null" if one is None else decimal_cell(rng, one) for one in column.to_pylist()]
    if types.is_date(of) or types.is_timestamp(of):
        return ["null" if one is None else json.dumps(one) for one in texts(column)]
    if types.is_nested(of):
        return [json.dumps(one, ensure_ascii=False) for one in column.to_pylist()]
    return ["null" if one is None else json.dumps(one, ensure_ascii=rng.random() < 0.3) for one in column.to_pylist()]


def decimal_cell(rng, one):
    plain = f"{one:f}"
    number = rng.choice([plain, plain, f"{one.scaleb(-3):f}e3", f"{one.scaleb(2):f}E-2"])
    return rng.choice([number, f'"{number}"'])


def json_truth(column, of):
    if column.null_count == len(column):
        return pa.nulls(len(column), of)
    return pa.array(column.to_pylist(), of) if pa.types.is_nested(of) else read_as(column, of)


def texts(column):
    """The values as text; nulls stay."""
    of, types = column.type, pa.types
    if types.is_floating(of):
        return [None if one is None else repr(one) for one in column.to_pylist()]
    if types.is_boolean(of):
        return [None if one is None else str(one).lower() for one in column.to_pylist()]
    if types.is_timestamp(of):
        return [None if one is None else timestamp_text(one, of) for one in column.cast(pa.int64()).to_pylist()]
    if types.is_decimal(of):
        # Without an exponent, which no decimal of text has.
        return [None if one is None else f"{one:f}" for one in column.to_pylist()]
    return [None if one is None else str(one) for one in column.to_pylist()]


def timestamp_text(count, of):
    digits = 3 * values.UNITS.index(of.unit)
    seconds, part = divmod(count, 10**digits)
    day, second = divmod(seconds, 86_400)
    date = pa.array([day], pa.date32()).cast(pa.string())[0].as_py()
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"{date} {clock}" + (f".{part:0{digits}}" if digits else "") + ("Z" if of.tz else "")


def read_as(column, of):
    if pa.types.is_floating(of):
        # There is one NaN in text.
        return pa.array([None if one is None else float(one) for one in texts(column)], of)
    return column.combine_chunks().cast(of) if column.type.equals(of) or not pa.types.is_string(of) else pa.array(texts(column), of)


NUMBER = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


def types_of_text(tables, infers):
    types = {}
    for name in dict.fromkeys(name for table in tables for name in table.column_names):
        columns = [table.column(name) for table in tables if name in table.column_names]
        if not infers:
            of = columns[0].type
            for column in columns[1:]:
                of = values.unified(of, column.type)
            types[name] = of
            continue
        some = [one for column in columns for one in texts(column) if one is not None]
        of = columns[0].type
        no_number = pa.types.is_floating(of) and not any(NUMBER.fullmatch(one) for one in some)
        types[name] = pa.string() if not some or no_number else of
    return types


def schema_text(name, of):
    name = '"' + name.replace('"', '""') + '"'
    types = pa.types
    if types.is_decimal(of):
        return f"{name} decimal({of.precision},{of.scale})"
    if types.is_timestamp(of):
        return f"{name} timestamp[{of.unit}{', ' + of.tz if of.tz else ''}]"
    known = {"double": "float64", "float": "float32", "string": "text", "date32[day]": "date"}
    return f"{name} {known.get(str(of), str(of))}"

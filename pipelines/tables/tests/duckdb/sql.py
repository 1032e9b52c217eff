"""Columns, types and orders as DuckDB is asked of them."""

import pyarrow as pa


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

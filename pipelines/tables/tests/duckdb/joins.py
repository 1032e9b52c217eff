"""Which columns of two tables are compared where they are joined, and which rows DuckDB puts side by side."""

import pyarrow as pa
import pyarrow.compute as pc

import compare
import values
from sql import duckdb_type, order_terms

# Pairs of rows of one key, about, at most: both tables may have it many times.
PAIRS_MAX = 20_000
POOL = 12
SIDES = ("left_rows", "right_rows")


def columns(oracle):
    """Columns of the table that can be compared with another one, and their types. By `id` rows are known, so it stays what it is."""
    return {name: oracle.types[name] for name in oracle.select or oracle.types if name != "id" and values.can_match(oracle.types[name])}


def drawn(rng, columns):
    """Some of these columns, and what they are called in the right table."""
    names = rng.sample(list(columns), min(len(columns), rng.choice([1, 1, 2])))
    return [(name, name if rng.random() < 0.5 else f"key {at}") for at, name in enumerate(names)]


def pool(rng, oracle, name):
    """Some values of a column."""
    column = oracle.all_rows().column(name).combine_chunks().drop_null()
    return column.take(pa.array([rng.randrange(len(column)) for _ in range(POOL if len(column) else 0)], pa.int64()))


def rows_max(oracle, name):
    """How many rows the right table has at most, so that there are not too many pairs."""
    column = oracle.all_rows().column(name).combine_chunks().drop_null()
    column = column.cast(pa.float32()) if pa.types.is_float16(column.type) else column
    heaviest = pc.max(pc.value_counts(column).field("counts")).as_py() or 1
    return min(600, 1 + PAIRS_MAX // heaviest)


def differ(oracle, written, on, kind, suffix, order):
    """How the output differs from what DuckDB finds; `None`: not at all."""
    right, has_pairs = oracle.right, kind not in ("semi", "anti")
    of_keys = [values.stored(values.unified(oracle.types[pair["left"]], right.types[pair["right"]]), "parquet") for pair in on]
    expected_ids = rows_of_both(oracle, on, kind, order, of_keys)
    ids = [written.ids, written.rows.column("id" + suffix).combine_chunks().cast(pa.int64()) if has_pairs else pa.nulls(len(written.ids), pa.int64())]
    if what := rows_differ(ids, expected_ids):
        return what
    expected = expected_columns(oracle, on, suffix, ids, of_keys, has_pairs)
    if written.rows.column_names != list(expected):
        return f"columns {written.rows.column_names}, not {list(expected)}"
    for name, other in expected.items():
        one = written.rows.column(name).combine_chunks()
        if not compare.same_type(one.type, other.type):
            return f"column {name} is {one.type}, not {other.type}"
        if found := compare.difference(name, one, other):
            return f"found and expected: {found}"
    return None


def rows_of_both(oracle, on, kind, order, of_keys):
    """The `id` of the left and of the right row of each row that has to be written, in order."""
    keys = [f"k{at}" for at in range(len(on))]
    for rows, side, name_of in zip(SIDES, (oracle, oracle.right), ("left", "right")):
        query = side.rows_of({key: pair[name_of] for key, pair in zip(keys, on)})
        selects = ", ".join(f"{normalised(key, of)} as {key}" for key, of in zip(keys, of_keys))
        oracle.connection.execute(f"create or replace temp table {rows} as select cast(id as bigint) as id, {selects} from {query}")
    same = " and ".join(f"l.{key} = r.{key}" for key in keys)
    if kind in ("semi", "anti"):
        found = f"exists (select 1 from right_rows as r where {same})"
        of_left = ", ".join(f"l.{key} as {key}" for key in keys)
        query = f"select l.id as left_id, cast(null as bigint) as right_id, {of_left} from left_rows as l where {'' if kind == 'semi' else 'not '}{found}"
    else:
        of_one = ", ".join(f"coalesce(l.{key}, r.{key}) as {key}" for key in keys)
        query = f"select l.id as left_id, r.id as right_id, {of_one} from left_rows as l {kind} join right_rows as r on {same}"
    rising = {"descending": False, "nulls": "Last"}
    terms = [term for key, of in zip(keys, of_keys) for term in order_terms(key, of, rising)] if order == "key" else []
    places = ["right_id", "left_id"] if order == "right" else ["left_id", "right_id"]
    order_by = ", ".join([*terms, *(f"{place} nulls last" for place in places)])
    found = oracle.connection.sql(f"select left_id, right_id from ({query}) order by {order_by}").to_arrow_table()
    return [found.column(name).combine_chunks().cast(pa.int64()) for name in ("left_id", "right_id")]


def normalised(key, of):
    """A key as it is compared: -0.0 is 0.0, and all NaNs are one."""
    name = duckdb_type(of)
    value = f"cast({key} as {name})"
    if not pa.types.is_floating(of):
        return value
    return f"case when isnan({value}) then cast('nan' as {name}) when {value} = 0 then cast(0 as {name}) else {value} end"


def rows_differ(ids, expected):
    if all(one.equals(other) for one, other in zip(ids, expected)):
        return None
    found, there = ([(left, right) for left, right in zip(*(side.to_pylist() for side in both))] for both in (ids, expected))
    if len(found) != len(there):
        missing, more = sorted(set(there) - set(found), key=str)[:5], sorted(set(found) - set(there), key=str)[:5]
        return f"other rows: {len(found)}, not {len(there)}; DuckDB alone has {missing}, the output alone {more} (left and right)"
    at = next(at for at, (one, other) in enumerate(zip(found, there)) if one != other)
    return f"row {at} of the output is of rows {found[at]} of the left and the right table; DuckDB has {there[at]} there"


def expected_columns(oracle, on, suffix, ids, of_keys, has_pairs):
    """The columns of the left table, and the others of the right one behind them."""
    (left_ids, right_ids), keys = ids, {pair["left"]: (pair["right"], of) for pair, of in zip(on, of_keys)}
    left, right = oracle.expected("parquet"), oracle.right.expected("parquet")
    columns = {}
    for name in left.column_names:
        column = left.column(name).combine_chunks()
        if name not in keys:
            columns[name] = column.take(left_ids)
            continue
        # The key is that of the left table, or of the right one where no row of the left one is there.
        in_right, of = keys[name]
        both = pa.concat_arrays([values.conformed(one, of) for one in (column, right.column(in_right).combine_chunks())])
        places = pc.if_else(left_ids.is_null(), pc.add(right_ids, len(column)), left_ids)
        columns[name] = both.take(places)
    for name in right.column_names if has_pairs else []:
        if name not in [pair["right"] for pair in on]:
            columns[name + suffix if name in left.column_names else name] = right.column(name).combine_chunks().take(right_ids)
    return columns

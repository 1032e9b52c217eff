"""What is said of groups: as DuckDB says it, and, of floats, from the values that DuckDB lists for each group."""

import decimal
import math
from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

import compare

# What is said of the first or last row of a group, which is known by its `id`.
BY_ROW = ("first", "last")
OF_FLOATS = ("sum", "avg", "variance", "stddev_pop")


def expression(aggregate, name):
    """What DuckDB is asked; of numbers whose results are floats, all values, which are added up exactly here."""
    function, part = aggregate["function"], aggregate["part"]
    if function == "count":
        return f"count({name})" if aggregate["column"] else "count(*)"
    if function in BY_ROW:
        return {"first": "min(id)", "last": "max(id)"}[function]
    if function in OF_FLOATS or function == "quantile_cont":
        return f"list({name}) filter ({name} is not null)"
    if function == "count_distinct":
        return f"count(distinct {name})"
    if function == "quantile":
        return f"quantile_disc({name}, {part})"
    return f"{function}({name})"


def differ(oracle, written, by, aggregates, found):
    """How the output differs from what DuckDB found; `None`: not at all."""
    names = [*by, *(aggregate["name"] for aggregate in aggregates)]
    if written.rows.column_names != names:
        return f"columns {written.rows.column_names}, not {names}"
    rows = oracle.all_rows()
    for column in by:
        expected = normalised(at_path(oracle, rows, column).take(written.ids))
        if what := differs(column, written.rows.column(column).combine_chunks(), expected):
            return what
    for at, aggregate in enumerate(aggregates):
        one, other = written.rows.column(aggregate["name"]).combine_chunks(), found.column(f"v{at}").combine_chunks()
        text = f"{aggregate['function']} of {aggregate['column']}"
        if aggregate["function"] in BY_ROW:
            what = differs(text, one, at_path(oracle, rows, aggregate["column"]).take(other.cast(pa.int64())))
        elif aggregate["function"] in OF_FLOATS or aggregate["function"] == "quantile_cont":
            what = numbers_differ(text, aggregate, one.to_pylist(), other.to_pylist())
        elif aggregate["function"] in ("min", "max", "quantile"):
            of = at_path(oracle, rows, aggregate["column"]).type
            what = differs(text, one, normalised(as_type(other, of)))
        else:
            what = None if one.to_pylist() == other.to_pylist() else f"{text}: {first_difference(one.to_pylist(), other.to_pylist())}"
        if what:
            return what
    return None


def at_path(oracle, rows, path):
    from sql import resolve

    name, inside, _ = resolve(oracle.types, path)
    column = rows.column(name).combine_chunks()
    for field in inside:
        column = pc.struct_field(column, field)
    return column


def as_type(array, of):
    """What DuckDB gave, with the type that the column has."""
    if array.type.equals(of):
        return array
    if pa.types.is_fixed_size_binary(of) or pa.types.is_duration(of):
        return array.cast(pa.int64()).cast(of) if pa.types.is_duration(of) else array.cast(pa.binary()).cast(of)
    return array.cast(of, safe=False)


def normalised(array):
    """-0.0 as 0.0, and all NaNs as one."""
    if not pa.types.is_floating(array.type):
        return array
    of = array.type
    wide = array.cast(pa.float64())
    wide = pc.if_else(pc.is_nan(wide), pa.scalar(float("nan")), wide)
    wide = pc.if_else(pc.equal(wide, pa.scalar(0.0)), pa.scalar(0.0), wide)
    return wide.cast(of, safe=False)


def differs(text, one, other):
    if not compare.same_type(one.type, other.type):
        return f"{text} is {one.type}, not {other.type}"
    if has_floats_inside(one.type):
        # What is inside is normalised in the key.
        return None if one.is_null().equals(other.is_null()) else f"{text}: other nulls"
    if what := compare.difference(text, normalised(one) if pa.types.is_floating(one.type) else one, other if not pa.types.is_floating(other.type) else normalised(other)):
        return f"found and expected: {what}"
    return None


def has_floats_inside(of):
    if not pa.types.is_nested(of):
        return False
    inside = [of.field(at).type for at in range(of.num_fields)]
    return any(pa.types.is_floating(field) or has_floats_inside(field) for field in inside)


def numbers_differ(text, aggregate, one, lists):
    for row, (value, values) in enumerate(zip(one, lists)):
        expected = exact(aggregate, values or [])
        if not alike(value, expected):
            return f"{text}, row {row}: {value!r}, not {expected!r}, of {(values or [])[:20]}"
    return None


def alike(one, other):
    if one is None or other is None:
        return one is other
    if isinstance(other, (int, decimal.Decimal)) and not isinstance(one, float):
        return decimal.Decimal(one) == decimal.Decimal(other)
    one, other = float(one), float(other)
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or math.isclose(one, other, rel_tol=1e-12, abs_tol=5e-324)


def exact(aggregate, values):
    """The aggregate of some numbers, from exact sums."""
    function, count = aggregate["function"], len(values)
    if count == 0:
        return None
    if function == "quantile_cont":
        return between(sorted(values, key=lambda value: (math.isnan(value), value)), aggregate["part"])
    are_floats = any(isinstance(value, float) for value in values)
    if are_floats and any(math.isnan(value) or math.isinf(value) for value in values):
        total = sum(values)
        if function in ("sum", "avg"):
            return total
        return None if function == "variance" and count == 1 else math.nan
    total = sum(Fraction(value) for value in values)
    if function == "sum":
        return as_float(total) if are_floats else int(total)
    if function == "avg":
        return as_float(total / count)
    if function == "variance" and count == 1:
        return None
    squares = sum(Fraction(value) ** 2 for value in values)
    variance = (squares - total * total / count) / (count - 1 if function == "variance" else count)
    if function == "variance":
        return as_float(variance)
    # A root of what has 2^2000 as its largest values does not fit a float on the way.
    shift = max(0, (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2)
    return math.sqrt(as_float(variance / (1 << 2 * shift))) * 2.0**shift


def as_float(number):
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def between(values, part):
    place = part * (len(values) - 1)
    below, above = float(values[math.floor(place)]), float(values[math.ceil(place)])
    return below if below == above else below + (above - below) * (place - math.floor(place))


def first_difference(one, other):
    for row, (left, right) in enumerate(zip(one, other)):
        if left != right:
            return f"row {row}: {left!r}, not {right!r}"
    return f"{len(one)} rows, not {len(other)}"

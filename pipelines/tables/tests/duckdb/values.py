"""Random types and values, and which types become one (docs/semantics.md says the same in words)."""

import decimal
import struct

import pyarrow as pa

decimal.getcontext().prec = 100

TEXTS = ["", "a", "a\0", "a\0\x01", "Z", "é", "grüße", "the same beginning", "the same beginning and more", "\U0001f980", " ",
         'say "no"', "a,b", "two\nlines", "a\ttab", "\U0010ffff", "x" * 40]
ZONES = ["UTC", "+02:00", "Europe/Berlin"]
UNITS = ["s", "ms", "us", "ns"]
# Nanoseconds of 64 bits reach from 1677 to 2262: seconds within are times of every unit.
SECONDS = 9_000_000_000


def family(rng, nested=True):
    """Types that columns of one name may have in several files, since one type holds them all; the first is the one of most."""
    pick = rng.random()
    if pick < 0.25:
        return rng.choice([
            [pa.int8(), pa.int16(), pa.int32(), pa.int64()], [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()],
            [pa.int64(), pa.uint32()], [pa.int8(), pa.uint8()], [pa.int16(), pa.uint16()], [pa.uint64()],
        ])
    if pick < 0.35:
        return rng.choice([[pa.float64(), pa.float32()], [pa.float32(), pa.int16()], [pa.float64(), pa.int32(), pa.float32()],
                           [pa.float16(), pa.float32()]])
    if pick < 0.47:
        return rng.choice([
            [pa.decimal128(9, 2), pa.decimal128(20, 4)], [pa.decimal128(38, 10)], [pa.decimal128(12, 2), pa.int32()],
            [pa.decimal32(7, 2), pa.decimal64(15, 3)], [pa.decimal256(60, 5)], [pa.decimal128(5, 5)], [pa.decimal128(18, 0)],
            [pa.decimal256(20, 3)],
        ])
    if pick < 0.62:
        return rng.choice([[pa.string()], [pa.string(), pa.large_string()], [pa.string_view()],
                           [pa.dictionary(pa.int8(), pa.string()), pa.string()], [pa.dictionary(pa.int32(), pa.large_string())]])
    if pick < 0.68:
        size = rng.choice([1, 3, 16])
        return rng.choice([[pa.binary()], [pa.large_binary(), pa.binary()], [pa.binary(size)], [pa.binary(size), pa.binary()]])
    if pick < 0.85:
        zone = rng.choice([None, *ZONES])
        units = rng.sample(UNITS, 2)
        return rng.choice([
            [pa.bool_()], [pa.date32()], [pa.date32(), pa.date64()], [pa.time32("s"), pa.time32("ms")],
            [pa.time64("us"), pa.time64("ns"), pa.time32("ms")],
            [pa.timestamp(unit, zone) for unit in units], [pa.timestamp(unit, zone) for unit in units],
            [pa.timestamp(rng.choice(UNITS), zone) for zone in ZONES],
            [pa.duration(rng.choice(UNITS))],
        ])
    if pick < 0.87:
        return [pa.null()]
    return [nested_type(rng, 2)] if nested else [pa.int64()]


def misfits(rng):
    """Two types that no type holds both of."""
    return rng.choice([
        (pa.int64(), pa.float64()), (pa.uint64(), pa.int8()), (pa.bool_(), pa.int32()), (pa.string(), pa.binary()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")), (pa.date32(), pa.timestamp("ms")), (pa.decimal128(10, 2), pa.float64()),
        (pa.string(), pa.int16()), (pa.list_(pa.int64()), pa.list_(pa.float64())), (pa.list_(pa.int64()), pa.int64()),
        (pa.struct([("a", pa.string())]), pa.struct([("a", pa.int8())])), (pa.decimal128(38, 0), pa.decimal256(76, 76)),
    ])


def inner_type(rng, depth):
    if depth > 0 and rng.random() < 0.3:
        return nested_type(rng, depth - 1)
    return rng.choice([pa.int32(), pa.uint64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.decimal128(20, 4),
                       pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.binary()])


def nested_type(rng, depth):
    pick = rng.random()
    if pick < 0.4:
        return rng.choice([pa.list_, pa.list_, pa.large_list])(inner_type(rng, depth))
    if pick < 0.5:
        return pa.list_(rng.choice([pa.int16(), pa.string(), pa.float32()]), rng.choice([1, 3]))
    if pick < 0.85:
        return pa.struct([(name, inner_type(rng, depth)) for name in ["a", "b", "c d"][: rng.randint(1, 3)]])
    return pa.map_(rng.choice([pa.string(), pa.int64()]), inner_type(rng, depth))


def can_match(of):
    """Whether a column of the type can be compared with one of another table as DuckDB compares them: nulls in lists and structs are others there, and durations are numbers."""
    types = pa.types
    return not (types.is_nested(of) or types.is_null(of) or types.is_duration(of) or types.is_decimal256(of))


def family_with(rng, of):
    """As `family`, of types each of which is one with this type."""
    types = pa.types
    if types.is_integer(of):
        unsigned = [pa.uint8(), pa.uint16(), pa.uint32()]
        signed = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
        return rng.sample([*unsigned, pa.uint64()] if of.equals(pa.uint64()) else unsigned + signed, 2)
    if types.is_floating(of):
        return rng.sample({16: [pa.float16(), pa.float32()], 32: [pa.float32(), pa.float64(), pa.int16()], 64: [pa.float64(), pa.float32(), pa.int32()]}[of.bit_width], 2)
    if types.is_decimal(of):
        return [of, pa.int32()] if max(of.precision - of.scale, 10) + of.scale <= 38 and rng.random() < 0.5 else [of]
    if types.is_string(of) or types.is_large_string(of):
        return rng.sample([pa.string(), pa.large_string()], 2)
    if types.is_fixed_size_binary(of):
        return [of, pa.binary()]
    if types.is_binary(of) or types.is_large_binary(of):
        return rng.sample([pa.binary(), pa.large_binary()], 2)
    if types.is_date(of):
        return rng.sample([pa.date32(), pa.date64()], 2)
    return [pa.timestamp(unit, of.tz) for unit in rng.sample(UNITS, 2)] if types.is_timestamp(of) else [of]


def is_named_in_text(of):
    """Whether `--schema` has a name for the type, and text is written of it."""
    types = pa.types
    if types.is_timestamp(of):
        return of.unit != "s" and of.tz in (None, "UTC")
    is_float = types.is_float32(of) or types.is_float64(of)
    return is_float or types.is_integer(of) or types.is_string(of) or types.is_boolean(of) or types.is_date32(of) or types.is_decimal128(of)


def of_text(rng):
    """As `family`, of types that text holds and `--schema` names."""
    zone = rng.choice([None, "UTC"])
    return rng.choice([
        [pa.int64()], [pa.int8(), pa.int32()], [pa.uint16(), pa.uint64()], [pa.float64()], [pa.float32(), pa.float64()],
        [pa.string()], [pa.string()], [pa.bool_()], [pa.date32()], [pa.timestamp("us", zone)],
        [pa.timestamp("ms", zone), pa.timestamp("ns", zone)], [pa.decimal128(10, 2), pa.decimal128(20, 4)], [pa.decimal128(38, 3)],
    ])


def inferred_of_text(rng):
    """As `family`, of types that are inferred from text."""
    zone = rng.choice([None, "UTC"])
    return [rng.choice([pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us", zone),
                        pa.timestamp("ns", zone)])]


def inferred_of_json(rng):
    """As `family`, of types that are inferred from JSON, as far as there are values."""
    flat = lambda: rng.choice([pa.int64(), pa.string(), pa.bool_()])  # noqa: E731
    return [rng.choice([pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.list_(flat()), pa.struct([("a", flat()), ("b c", pa.list_(flat()))]),
                        pa.list_(pa.struct([("a", flat()), ("d", flat())]))])]


def value(rng, of, null=0.0):
    """A value as `pa.array` takes it."""
    if rng.random() < null:
        return None
    inside = lambda of: value(rng, of, 0.2)  # noqa: E731
    types = pa.types
    if types.is_null(of):
        return None
    if types.is_boolean(of):
        return rng.random() < 0.5
    if types.is_integer(of):
        low, high = (-(1 << of.bit_width - 1), (1 << of.bit_width - 1) - 1) if types.is_signed_integer(of) else (0, (1 << of.bit_width) - 1)
        return rng.choice([0, 1, low, high, rng.randint(low, high), rng.randint(max(low, -20), 20), high - 1])
    if types.is_floating(of):
        small = rng.choice([0.0, -0.0, 1.5, -1.5, float("inf"), float("-inf"), float("nan"), rng.randint(-80, 80) / 4])
        large = rng.gauss(0, 1) * 10.0 ** rng.randint(-30, 30)
        return small if of.bit_width == 16 or rng.random() < 0.6 else struct.unpack("f", struct.pack("f", large))[0]
    if types.is_decimal(of):
        digits = rng.choice([1, 3, of.precision])
        return decimal.Decimal(rng.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-of.scale) if digits <= of.precision else decimal.Decimal(0)
    if types.is_fixed_size_binary(of):
        return bytes(rng.choice([0, 255, rng.randrange(256)]) for _ in range(of.byte_width))
    if types.is_binary(of) or types.is_large_binary(of):
        return bytes(rng.choice([0, 1, 255, rng.randrange(256)]) for _ in range(rng.randint(0, 12)))
    if types.is_date32(of):
        return rng.choice([0, -1, -719_162, 2_932_896, rng.randint(-700_000, 2_900_000), rng.randint(18_000, 18_020)])
    if types.is_date64(of):
        return 86_400_000 * rng.randint(-30_000, 60_000)
    if types.is_time(of):
        per_second = 10 ** (3 * UNITS.index(of.unit))
        # DuckDB counts microseconds.
        grain = 1000 if of.unit == "ns" else 1
        return rng.choice([0, 86_399 * per_second, rng.randrange(86_400 * per_second // grain) * grain])
    if types.is_timestamp(of) or types.is_duration(of):
        per_second = 10 ** (3 * UNITS.index(of.unit))
        grain = 1000 if of.unit == "ns" else 1
        seconds = rng.choice([0, -1, SECONDS, -SECONDS, rng.randint(-SECONDS, SECONDS), 1_700_000_000 + rng.randint(0, 9)])
        return seconds * per_second + rng.choice([0, rng.randrange(per_second // grain or 1) * grain])
    if types.is_list(of) or types.is_large_list(of):
        return [inside(of.value_type) for _ in range(rng.randint(0, 3))]
    if types.is_fixed_size_list(of):
        return [inside(of.value_type) for _ in range(of.list_size)]
    if types.is_map(of):
        keys = {value(rng, of.key_type) for _ in range(rng.randint(0, 3))}
        return [(key, inside(of.item_type)) for key in keys]
    if types.is_struct(of):
        return {field.name: inside(field.type) for field in of}
    assert types.is_string(of) or types.is_large_string(of) or types.is_string_view(of), of
    return rng.choice(TEXTS) if rng.random() < 0.7 else "".join(rng.choice(TEXTS) for _ in range(rng.randint(1, 3)))


def array(rng, of, rows, nulls):
    """Rows of a type, of which so many are null; often of few different values, so that keys are equal."""
    values = of.value_type if pa.types.is_dictionary(of) else of
    few = rng.choice([1, 3, 20, max(rows, 1)])
    if pa.types.is_float32(values) or pa.types.is_float64(values):
        bits = pa.uint32() if pa.types.is_float32(values) else pa.uint64()
        some = pa.array([value(rng, values) for _ in range(few)], values).view(bits).to_pylist()
        # NaNs of either sign with a payload are what they were afterwards.
        odd = [0x7FC01234, 0xFFC00001] if pa.types.is_float32(values) else [0x7FF8000000001234, 0xFFF8000000000001]
        pool = pa.array([rng.choice(odd) if rng.random() < 0.05 else one for one in some], bits).view(values)
    else:
        pool = pa.array([value(rng, values) for _ in range(few)], values)
    places = pa.array([None if rng.random() < nulls else rng.randrange(few) for _ in range(rows)], pa.int64())
    if pa.types.is_string_view(values):
        return pool.cast(pa.string()).take(places).cast(pa.string_view())
    taken = pool.take(places)
    return taken.dictionary_encode().cast(of) if pa.types.is_dictionary(of) else taken


def with_some_of(rng, array, pool):
    """Most values of the array replaced by some of these, as far as its type has them; nulls stay."""
    fit = []
    for value in (pool[at : at + 1] for at in range(len(pool))):
        try:
            fit.append(value.cast(array.type))
        except pa.ArrowException:
            # Another type has more values.
            continue
    own = len(array)
    places = pa.array([own + rng.randrange(len(fit)) if fit and array[at].is_valid and rng.random() < 0.65 else at for at in range(own)], pa.int64())
    return pa.concat_arrays([array, *fit]).take(places)


DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19, "uint8": 3, "uint16": 5, "uint32": 10, "uint64": 20}


def unified(a, b):
    """The type that holds the values of both."""
    types = pa.types
    if a.equals(b) or types.is_null(b):
        return a
    if types.is_null(a):
        return b
    if types.is_integer(a) and types.is_integer(b):
        if types.is_signed_integer(a) == types.is_signed_integer(b):
            return a if a.bit_width >= b.bit_width else b
        unsigned, signed = (a, b) if types.is_unsigned_integer(a) else (b, a)
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[max(signed.bit_width, 2 * unsigned.bit_width)]
    if types.is_floating(a) and types.is_floating(b):
        return a if a.bit_width >= b.bit_width else b
    if types.is_floating(a) or types.is_floating(b):
        floating, integer = (a, b) if types.is_floating(a) else (b, a)
        return floating if floating.bit_width > integer.bit_width else pa.float64()
    if types.is_decimal(a) or types.is_decimal(b):
        (left, left_scale), (right, right_scale) = [(of.precision - of.scale, of.scale) if types.is_decimal(of) else (DIGITS[str(of)], 0)
                                                    for of in (a, b)]
        scale = max(left_scale, right_scale)
        digits, is_wide = max(left, right) + scale, types.is_decimal256(a) or types.is_decimal256(b)
        return pa.decimal256(digits, scale) if is_wide or digits > 38 else pa.decimal128(digits, scale)
    if types.is_date(a):
        return pa.date64()
    finer = lambda: max(a.unit, b.unit, key=UNITS.index)  # noqa: E731
    if types.is_timestamp(a):
        return pa.timestamp(finer(), a.tz)
    if types.is_duration(a):
        return pa.duration(finer())
    if types.is_time(a):
        return pa.time64(finer()) if finer() in ("us", "ns") else pa.time32(finer())
    if types.is_string(a) or types.is_large_string(a):
        return pa.large_string()
    if types.is_large_binary(a) or types.is_large_binary(b):
        return pa.large_binary()
    if types.is_binary(a) or types.is_fixed_size_binary(a):
        return pa.binary()
    if types.is_struct(a):
        names = [field.name for field in a] + [field.name for field in b if a.get_field_index(field.name) < 0]
        of = lambda name: [t.field(name).type for t in (a, b) if t.get_field_index(name) >= 0]  # noqa: E731
        return pa.struct([(name, unified(*(of(name) * 2)[:2])) for name in names])
    if types.is_map(a):
        return pa.map_(unified(a.key_type, b.key_type), unified(a.item_type, b.item_type))
    element = unified(a.value_type, b.value_type)
    return pa.large_list(element) if types.is_large_list(a) or types.is_large_list(b) else pa.list_(element)


def conformed(column, of):
    """The column with another type, all of whose values that one has."""
    if column.type.equals(of):
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), of)
    return column.cast(of)


def mapped(of, flat):
    """The type with `flat` done to all that is in it and to itself."""
    types = pa.types
    inside = lambda of: mapped(of, flat)  # noqa: E731
    if types.is_dictionary(of):
        return inside(of.value_type)
    if types.is_list(of) or types.is_list_view(of):
        return flat(pa.list_(inside(of.value_type)))
    if types.is_large_list(of):
        return flat(pa.large_list(inside(of.value_type)))
    if types.is_fixed_size_list(of):
        return flat(pa.list_(inside(of.value_type), of.list_size))
    if types.is_map(of):
        return flat(pa.map_(inside(of.key_type), inside(of.item_type)))
    if types.is_struct(of):
        return flat(pa.struct([(field.name, inside(field.type)) for field in of]))
    return flat(of)


def seen_in(form, of):
    """The type that exobus sees in a file, of one that was written to it."""
    def flat(of):
        types = pa.types
        if types.is_string_view(of):
            return pa.string()
        if form == "parquet":
            if types.is_large_string(of):
                return pa.string()
            if types.is_large_binary(of):
                return pa.binary()
            if types.is_large_list(of):
                return pa.list_(of.value_type)
            return in_parquet(of)
        return of
    return mapped(of, flat)


def in_parquet(of):
    if pa.types.is_timestamp(of) and of.unit == "s":
        return pa.timestamp("ms", of.tz)
    if pa.types.is_time32(of) and of.unit == "s":
        return pa.time32("ms")
    return of


def stored(of, form):
    """The type of a column in the output."""
    def flat(of):
        types = pa.types
        if form == "arrow":
            return of
        if types.is_date64(of):
            return pa.date32()
        if types.is_decimal32(of) or types.is_decimal64(of):
            return pa.decimal128(of.precision, of.scale)
        if form == "parquet":
            return in_parquet(of)
        if types.is_float16(of):
            return pa.float32()
        return pa.string() if types.is_large_string(of) else of
    return mapped(of, flat)


def has_text(of):
    """Whether CSV and TSV have the type."""
    types = pa.types
    is_binary = types.is_binary(of) or types.is_large_binary(of) or types.is_fixed_size_binary(of)
    return not (types.is_nested(of) or types.is_time(of) or types.is_duration(of) or types.is_null(of) or is_binary and not types.is_decimal(of))

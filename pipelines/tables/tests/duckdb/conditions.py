"""Random conditions, as `--where` has them and as DuckDB has them."""

import decimal
import re
import struct

import pyarrow as pa
import pyarrow.compute as pc

import files
import values
from sql import key_paths, resolve

COMPARISONS = ["=", "!=", "<>", "<", "<=", ">", ">="]


class Condition:
    """`columns`: paths of the columns that it looks at, by their names in `sql`."""

    def __init__(self, text, sql, columns):
        self.text, self.sql, self.columns = text, sql, columns


def drawn(rng, types, rows, has_exponents=True):
    """`has_exponents`: numbers may have some, with which they are as exact as others. They are not in SQL."""
    draft = Draft(rng, types, rows, has_exponents)
    text, sql = draft.condition(2)
    return Condition(text, sql, draft.columns)


class Draft:
    def __init__(self, rng, types, rows, has_exponents):
        self.rng, self.types, self.rows, self.has_exponents, self.columns = rng, types, rows, has_exponents, {}
        self.paths = [path for name, of in types.items() for path in key_paths(name, of)]

    def condition(self, depth):
        """A condition as text, and as SQL."""
        pick = self.rng.random() if depth else 1
        if pick < 0.4:
            word = self.rng.choice(["and", "or"])
            both = [self.condition(depth - 1) for _ in range(self.rng.choice([2, 2, 3]))]
            return tuple(f" {word} ".join(f"({one})" for one in side) for side in zip(*both))
        if pick < 0.55:
            return tuple(f"not ({one})" for one in self.condition(depth - 1))
        return self.test(self.rng.choice(self.paths))

    def test(self, path):
        rng, types = self.rng, pa.types
        name, inside, of = resolve(self.types, path)
        text, sql = ".".join(self.name(part) for part in [name, *inside]), self.alias(path)
        negated = rng.choice(["", "", "not "])
        if types.is_nested(of) or types.is_duration(of) or rng.random() < 0.15:
            return f"{text} is {negated}null", f"{sql} is {negated}null"
        if types.is_null(of):
            return f"{text} = 3", f"{sql} = 3"
        if types.is_boolean(of) and rng.random() < 0.3:
            return negated + text, negated + sql
        pick = rng.random()
        if is_text(of) and pick < 0.3:
            pattern, escape = self.pattern(path)
            return (f"{text} {negated}like {quoted(pattern)}{escape}", f"{sql} {negated}like {bytes_of(pattern)}{escape}")
        if pick < 0.4 and (alike := [other for other in self.paths if other != path and resolve(self.types, other)[2].equals(of)]):
            other, comparison = rng.choice(alike), rng.choice(COMPARISONS)
            top, below, _ = resolve(self.types, other)
            return (f"{text} {comparison} {'.'.join(self.name(part) for part in [top, *below])}", f"{sql} {comparison} {self.alias(other)}")
        left, of_literals = compared(sql, of), lambda count: [self.literal(path, of) for _ in range(count)]
        if pick < 0.75:
            comparison, (one, other) = rng.choice(COMPARISONS), of_literals(1)[0]
            sides = [(text, one), (left, other)]
            if rng.random() < 0.2:
                sides = [side[::-1] for side in sides]
            return tuple(f"{side[0]} {comparison} {side[1]}" for side in sides)
        if pick < 0.87:
            among = of_literals(rng.randint(1, 4)) + ([("null", "null")] if rng.random() < 0.15 else [])
            return tuple(f"{column} {negated}in ({', '.join(side)})" for column, side in zip((text, left), zip(*among)))
        between = of_literals(2)
        return tuple(f"{column} {negated}between {low} and {high}" for column, (low, high) in zip((text, left), zip(*between)))

    def name(self, name):
        is_plain = re.fullmatch(r"[a-z]+[0-9]+", name) and self.rng.random() < 0.5
        return name if is_plain else '"' + name.replace('"', '""') + '"'

    def alias(self, path):
        name = f"w{len(self.columns)}"
        self.columns[name] = path
        return name

    def value(self, path):
        """A value of the column, or one that it could have."""
        name, inside, of = resolve(self.types, path)
        column = self.rows.column(name).combine_chunks()
        for field in inside:
            column = pc.struct_field(column, field)
        column = column.drop_null()
        if len(column) and self.rng.random() < 0.8:
            return column[self.rng.randrange(len(column))]
        return pa.array([values.value(self.rng, of)], of)[0]

    def literal(self, path, of):
        """A literal as text, and as SQL of the type that the column is compared as."""
        rng, types, value = self.rng, pa.types, self.value(path)
        if types.is_boolean(of):
            return (str(value.as_py()).lower(),) * 2
        if types.is_integer(of) or types.is_decimal(of):
            return self.exact(value, of)
        if types.is_floating(of):
            return self.floating(float(value.as_py()), of)
        if is_text(of):
            text = value.as_py().replace("\0", "")
            return quoted(text), bytes_of(text)
        if types.is_temporal(of):
            return self.time(value.value, of)
        text = value.as_py().decode("ascii", "replace").replace("\0", "").replace("\ufffd", rng.choice(["", "\x7f", "é"]))
        return quoted(text), f"unhex('{text.encode().hex()}')"

    def exact(self, value, of):
        value, (digits, scale) = decimal.Decimal(value.as_py()), comparable_decimal(of)
        if not pa.types.is_decimal(of) or of.precision < digits:
            value += self.rng.choice([0, 0, 0, 1, -1, 5]) * decimal.Decimal(1).scaleb(-scale)
        plain = f"{value:f}"
        text = self.rng.choice([plain, plain, f"{value.scaleb(-3):f}e3" if self.has_exponents else plain, f"{plain}.0" if "." not in plain else f"{plain}0"])
        return text, f"cast('{plain}' as decimal({digits}, {scale}))"

    def floating(self, value, of):
        if self.rng.random() < 0.3:
            value = self.rng.choice([0.1, -0.3, 1 / 3, -0.0, float("nan"), float("inf"), float("-inf"), self.rng.randint(-99, 99) / 4])
        if abs(value) < 2**24 and self.rng.random() < 0.2:
            return str(int(value)), f"cast('{int(value)}' as double)"
        code = {16: "e", 32: "f", 64: "d"}[of.bit_width]
        nearest = struct.unpack(code, struct.pack(code, value))[0]
        text = repr(value) if value - value == 0 else quoted(str(value))
        return text, f"cast('{nearest!r}' as double)"

    def time(self, count, of):
        rng, types, word = self.rng, pa.types, ""
        if types.is_date(of):
            text = pa.array([count], pa.date32()).cast(pa.string())[0].as_py() + rng.choice(["", "", " 00:00:00", " 12:30:15.5"])
            word = rng.choice(["", "timestamp " if " " in text else "date "])
            return f"{word}'{text}'", f"timestamp '{text}'"
        per_second = 10 ** (3 * values.UNITS.index(of.unit))
        if types.is_time(of):
            text = files.timestamp_text(count, pa.timestamp(of.unit)).split(" ")[1]
            return f"'{text}'", f"time '{text}'"
        word = rng.choice(["", "timestamp "])
        text = files.timestamp_text(count, of)
        if of.tz:
            east = files.timestamp_text(count + 7200 * per_second, of).replace("Z", "+02:00")
            return f"{word}'{rng.choice([text, east])}'", f"cast('{text}' as timestamptz)"
        text += "5" if of.unit == "us" and rng.random() < 0.2 else ""
        return f"{word}'{text}'", f"cast('{text}' as timestamp_ns)"

    def pattern(self, path):
        """A pattern, and what says that `!` takes their meaning from `%` and `_`, where it does."""
        text, escaped = self.value(path).as_py().replace("\0", ""), self.rng.random() < 0.3
        marks = ["%", "_", "", *(["!%", "!_", "!!"] if escaped else [])]
        pattern = "".join(self.rng.choice(marks) if self.rng.random() < 0.2 else one for one in text)
        pattern = self.rng.choice(["", "%", "_"]) + pattern + self.rng.choice(["", "%", "%"])
        return pattern, " escape '!'" if escaped else ""


def is_text(of):
    return "string" in str(of)


def comparable_decimal(of):
    """Digits of a decimal that holds the numbers of a type, and if there is one what is between them, too."""
    precision, scale = (of.precision, of.scale) if pa.types.is_decimal(of) else (20, 0)
    return (precision + 2, scale + 1) if precision <= 36 else (precision, scale)


def compared(name, of):
    """A column as it is compared with literals."""
    types = pa.types
    if types.is_integer(of) or types.is_decimal(of):
        digits, scale = comparable_decimal(of)
        return f"cast({name} as decimal({digits}, {scale}))"
    if types.is_floating(of):
        return f"cast({name} as double)"
    if types.is_date(of):
        return f"cast({name} as timestamp)"
    if types.is_timestamp(of) and not of.tz:
        return f"cast(cast({name} as timestamp) as timestamp_ns)"
    return name


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def bytes_of(text):
    return f"decode(unhex('{text.encode().hex()}'))"

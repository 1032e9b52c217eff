#!/usr/bin/env python3
"""Makes row_hash.json: row hashes by the words of src/row_hash/mod.rs alone, with the xxhash package from PyPI. Run once, by hand."""
import json, struct
from decimal import Decimal
import xxhash

M64, M128 = (1 << 64) - 1, (1 << 128) - 1
le64 = lambda n: struct.pack("<Q", n & M64)
x64 = lambda data, seed: xxhash.xxh3_64_intdigest(data, seed=seed)


class Column:
    """A type: ("fixed", to_bytes), ("bytes",), ("null",), ("list", type) or ("struct", [types])."""
    def __init__(self, kind, counter):
        self.number = counter[0]
        counter[0] += 1
        self.kind = kind
        inner = {"list": lambda: [kind[1]], "struct": lambda: kind[1]}.get(kind[0], lambda: [])()
        self.inner = [Column(one, counter) for one in inner]

    def seed(self, k):
        return x64(le64(self.number), k)

    def of_bytes(self, data, k=0):
        return x64(data, self.seed(k)), x64(data, self.seed(k + 1))

    def pair(self, value):
        if value is None:
            return self.seed(2), self.seed(3)
        name = self.kind[0]
        if name == "fixed":
            return self.of_bytes(self.kind[1](value))
        if name == "bytes":
            return self.of_bytes(value)
        if name == "struct":
            pairs = [column.pair(one) for column, one in zip(self.inner, value)]
            return sum(a for a, _ in pairs) & M64, sum(b for _, b in pairs) & M64
        assert name == "list"
        element = self.inner[0]
        if element.kind[0] == "fixed":
            width = len(element.kind[1](0))
            data = b"".join(bytes(width) if one is None else element.kind[1](one) for one in value)
            if any(one is None for one in value):
                return self.of_bytes(data + bytes(int(one is not None) for one in value), 4)
            return self.of_bytes(data)
        pairs = [element.pair(one) for one in value]
        return (x64(b"".join(le64(a) for a, _ in pairs), self.seed(0)),
                x64(b"".join(le64(b) for _, b in pairs), self.seed(1)))


def rows(kinds, table):
    counter = [0]
    columns = [Column(kind, counter) for kind in kinds]
    hashes = []
    for row in table:
        pairs = [column.pair(value) for column, value in zip(columns, row)]
        a, b = sum(a for a, _ in pairs) & M64, sum(b for _, b in pairs) & M64
        hashes.append(xxhash.xxh3_128_intdigest(le64(a) + le64(b)))
    return {"rows": [f"{one:032x}" for one in hashes], "sum": f"{sum(hashes) & M128:032x}"}


integer = lambda width: ("fixed", lambda n: n.to_bytes(width, "little", signed=True))
i8, i32, i64, i128 = integer(1), integer(4), integer(8), integer(16)
f64bits, boolean, text, null = ("fixed", le64), ("fixed", lambda n: bytes([int(n)])), ("bytes",), ("null",)
nan, nan_payload = 0x7FF8000000000000, 0xFFF0000000000123
entry = lambda *fields: ("struct", list(fields))

made = {
    "integers": rows([i64, i32, i8], [(1, 7, 0), (-1, 8, -128), (None, 9, 127), (0, None, None)]),
    "text": rows([text], [(b"",), (b"a",), ("grüße aus Köln".encode(),), (None,), (b"0123456789" * 30,), (b"x" * 100,)]),
    "floats": rows([f64bits], [(0,), (1 << 63,), (nan,), (nan_payload,), (None,), (0x3FF8000000000000,)]),
    "bool_and_null": rows([boolean, null], [(True, None), (False, None), (None, None)]),
    "decimals": rows([i128, i128], [(12345, -1), (None, 0), (-(10**37), 10**37)]),
    "list_of_int32": rows([("list", i32), i64], [([1, 2, 3], 1), ([], 2), (None, 3), ([4, None], 4), ([None], 5), ([0], 6)]),
    "list_of_bool": rows([("list", boolean)], [([True, False, True],), ([],), ([None, True],)]),
    "list_of_text": rows([("list", text)], [([b"a", None],), ([b"b"],), ([],), (None,), ([b"", b"ab"],), ([b"a", b"b"],)]),
    "struct": rows([entry(i64, text), i64], [((1, b"x"), 1), ((None, None), 2), (None, 3), ((2, None), 4)]),
    "map": rows([("list", entry(text, i64))], [([(b"k", 1), (b"l", None)],), ([],), (None,)]),
    "list_of_structs_of_lists": rows([("list", entry(("list", i64), text))], [([([1, 2], b"a"), (None, b"b"), None],), ([([], None)],)]),
    "no_columns": rows([], [(), ()]),
}
print(json.dumps(made, indent=1))

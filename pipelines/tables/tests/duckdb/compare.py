"""How two columns differ, bit by bit and whatever is under nulls."""

import pyarrow as pa
import pyarrow.compute as pc


def same_type(one, other):
    """Whether types are the same but for the names of elements and entries, and for what may be null."""
    types = pa.types
    if types.is_struct(one) and types.is_struct(other):
        return [field.name for field in one] == [field.name for field in other] and all(
            same_type(one.field(at).type, other.field(at).type) for at in range(one.num_fields))
    if types.is_map(one) and types.is_map(other):
        return same_type(one.key_type, other.key_type) and same_type(one.item_type, other.item_type)
    for is_list in (types.is_list, types.is_large_list):
        if is_list(one) and is_list(other):
            return same_type(one.value_type, other.value_type)
    if types.is_fixed_size_list(one) and types.is_fixed_size_list(other):
        return one.list_size == other.list_size and same_type(one.value_type, other.value_type)
    return one.equals(other)


def difference(path, one, other):
    """Where two arrays of the same type and length differ first; `None`: nowhere."""
    types, of = pa.types, one.type
    if types.is_null(of):
        return None
    differs = pc.index(pc.not_equal(one.is_null(), other.is_null()), True).as_py()
    if differs >= 0:
        return f"{path}, row {differs}: {shown(one, differs)} and {shown(other, differs)}"
    if types.is_struct(of):
        for field in of:
            inside = [pc.struct_field(side, field.name) for side in (one, other)]
            if found := difference(f"{path}.{field.name}", *inside):
                return found
        return None
    if types.is_map(of):
        entries = pa.list_(pa.struct([pa.field("key", of.key_type, False), pa.field("value", of.item_type)]))
        return difference(path, one.cast(entries), other.cast(entries))
    if types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of):
        lengths = [pc.list_value_length(side) for side in (one, other)]
        return difference(f"{path} (length)", *lengths) or difference(f"{path}[]", *[pc.list_flatten(side) for side in (one, other)])
    if types.is_floating(of):
        bits = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[of.bit_width]
        left, right = one.view(bits), other.view(bits)
    else:
        left, right = one, other
    unequal = pc.fill_null(pc.not_equal(left, right), False)
    differs = pc.index(unequal, True).as_py()
    return None if differs < 0 else f"{path}, row {differs}: {shown(one, differs)} and {shown(other, differs)}"


def shown(array, row):
    value = array[row : row + 1]
    if pa.types.is_floating(array.type):
        bits = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[array.type.bit_width]
        return f"{value[0]} ({value.view(bits)[0]} as bits)"
    return str(value[0]) if not pa.types.is_string(array.type) else repr(value[0].as_py())

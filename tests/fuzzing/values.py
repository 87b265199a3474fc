"""Values at the borders of what libraries hold: right ones with one odd part, and damaged ones."""
# ruff: noqa: C901, PLR0911 -- A function has a case a kind.

from collections.abc import Mapping
from random import Random
from typing import Any

LENGTHS = (1, 2, 9, 17, 18, 19, 20, 37, 38, 39, 76, 77, 255, 256, 308, 309, 400, 10_000, 10_001)
EXPONENTS = (
    0, 1, 9, 37, 38, 39, 76, 99, 100, 308, 309, 323, 324, 999, 9_999, 99_999, 9_999_999, 99_999_999, 999_999_999,
    2**31 - 1, 2**31, 2**32 - 38, 2**63, 10**30,
)  # fmt: skip
NUMBERS = (
    0, 1, 63, 64, 127, 128, 255, 1_000, 8_191, 2**14, 10**6, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63,
    2**64 - 1,
)  # fmt: skip
DEPTHS = (1, 2, 99, 100, 101, 499, 500, 501, 100_000)
PIECES = (
    b"a", b"\\n", b"\\", b"\\u00e4", b"\\ud83d\\ude00", b"\\ud83d", b"\\u0000", b"\0", b"\xff", b"\xed\xa0\x80",
    b"\xc0\x80", b"\xf4\x90\x80\x80", "ä€😀".encode(), b"2026-11-22", b"2026-11-22T10:00:00.123456789Z",
    b"+99999-12-31", b"=", b"NaN",
)  # fmt: skip
MEGABYTE = 1 << 20
PLAIN = {
    "string": b'"x"', "binary": b'"YQ=="', "boolean": b"true", "date": b'"2026-11-22"',
    "uuid": b'"1b4e28ba-2fa1-11d2-883f-0016d3cca427"',
    "timestamp": b'"2026-11-22T10:00:00Z"', "jsonb": b'{"k":[1.50,null]}', "null": b"null", "array": b"[]",
    "map": b"{}", "struct": b"{}",
}  # fmt: skip
FIELDS: Mapping[str, Mapping[int, str]] = {
    "map": {1: "text", 2: "message"}, "timestamp": {1: "varint", 2: "varint"},
    "wrapper": {1: "varint"}, "value": {1: "varint", 2: "fixed64", 3: "text", 4: "varint", 5: "struct", 6: "list"},
    "struct": {1: "entry"}, "entry": {1: "text", 2: "value"}, "list": {1: "value"},
}  # fmt: skip
"""The fields of messages of Protobuf, by the kind of the field that holds one."""


def damage(random: Random, value: bytes) -> bytes:
    """Return the value as it is; now and then cut off, with a byte too many, or with one changed."""
    place = random.randrange(len(value) + 1)
    match random.randrange(20):
        case 0:
            return value[:place]
        case 1:
            return value[:place] + random.choice((*PIECES, b'"', b"{", b"}", b"]", b"\n")) + value[place:]
        case 2 if place < len(value):
            return value[:place] + bytes([value[place] ^ 1 << random.randrange(8)]) + value[place + 1 :]
        case 3:
            return value[:place] + value[random.randrange(len(value) + 1) :]
        case _:
            return value


def json_record(random: Random, types: Mapping[str, str]) -> bytes:
    """Return an object for columns of these types: one has a value at some border, and the others plain ones."""
    fields = [(name.encode(), random.choice((b"null", _plain(types[name])))) for name in types]
    odd = random.randrange(len(fields))
    fields[odd] = fields[odd][0], json_value(random, types[fields[odd][0].decode()])
    match random.randrange(40):
        case 0:
            fields.append((random.choice((*fields, (b"\\u0061", b"")))[0], json_number(random)))
        case 1:
            fields.append((random.choice(PIECES), json_value(random, "")))
        case 2:
            fields = []
        case 3 if random.randrange(100) == 0:
            fields += [(b"f%d" % number, b"1") for number in range(random.choice((10_000, 1_000_000)))]
        case _:
            pass
    inner = b",".join(b'"%s":%s' % each for each in fields)
    around = random.choice((b"",) * 30 + (b" ", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\0", b"[", b"{}"))
    return around + b"{%s}" % inner + random.choice((b"", b"", b"", around))


def json_value(random: Random, type_: str, levels: int = 4) -> bytes:
    """Return a value for a column of the type: at some border, or with a part that is."""
    kind, _, inner = type_.partition("<")
    inner = inner.removesuffix(">")
    if random.randrange(4) == 0:
        return _plain(type_)
    if random.randrange(6) == 0 or not levels:
        kind, inner = random.choice(("null", "decimal", "string", "array", "struct", "deep")) if levels else "null", ""
    match kind.partition("(")[0]:
        case "array":
            items = [json_value(random, inner, levels - 1) for _ in range(random.randrange(4))]
            return b"[%s]" % b",".join(items)
        case "map" | "struct":
            named = {"a": inner, "b": inner, "a\\u0000": inner}
            if kind == "map":
                named = dict.fromkeys(random.choice((("k",), ("k", "k2"), ("", "\\ud800"))), inner.partition(", ")[2])
            elif inner:
                named = dict(each.split(" ", 1) for each in inner.split(", "))
            pairs = [b'"%s":%s' % (each.encode(), json_value(random, named[each], levels - 1)) for each in named]
            return b"{%s}" % b",".join(pairs[: random.choice((1, 2, 2, 2))])
        case "deep":
            begin, end = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
            depth = random.choice(DEPTHS)
            return begin * depth + b"1" + end * depth
        case "null" | "boolean":
            return random.choice((b"null", b"true", b"false", b"tru", b'"true"', b"NaN", b"-Infinity"))
        case "string" | "binary" | "date" | "timestamp" | "uuid":
            return b'"%s"' % text(random)
        case _:
            number = json_number(random)
            return random.choice((*(number,) * 5, b'"%s"' % number, b'"%s"' % number.replace(b"e", b"\\u0065")))


def _plain(type_: str) -> bytes:
    return PLAIN.get(type_.partition("<")[0], b"0")


def text(random: Random) -> bytes:
    """Return a text of one or more pieces; a few have 50 MB."""
    if random.randrange(20_000) == 0:
        piece = random.choice(PIECES)
        return piece * (50 * MEGABYTE // len(piece))
    return b"".join(
        random.choice(PIECES) * random.choice((0, 1, 1, 1, 3, 30, 400)) for _ in range(random.choice((1, 2)))
    )


def json_number(random: Random) -> bytes:
    """Return a number; each of its parts may be as long as libraries hold, or longer."""
    whole = random.choice((b"0", b"1", b"-1", b"12", b"9" * random.choice(LENGTHS)))
    fraction = random.choice((b"", b"", b".5", b"." + b"0" * random.choice(LENGTHS) + b"1"))
    exponent = b""
    if random.randrange(2):
        sign, zeros = random.choice((b"", b"-", b"-", b"+")), random.choice((b"", b"", b"0000000"))
        exponent = random.choice((b"e", b"E")) + sign + zeros + b"%d" % random.choice(EXPONENTS)
    return whole + fraction + exponent


def varint(number: int) -> bytes:
    """Return a number of at most 64 bits in groups of seven bits."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def odd_varint(random: Random) -> bytes:
    """Return a number at a border, or one that is written longer than it need be."""
    number = varint(random.choice(NUMBERS))
    if random.randrange(4) == 0:
        return bytes([*number[:-1], number[-1] | 0x80, *b"\x80" * random.randrange(9), random.choice((0, 1, 0x7F))])
    return number


def long_of_avro(random: Random, number: int) -> bytes:
    """Return the number as Avro has it; now and then another one."""
    return (
        odd_varint(random) if random.randrange(50) == 0 else varint(number << 1 if number >= 0 else (-number << 1) - 1)
    )


def avro_value(random: Random, schema: Any, levels: int = 6) -> bytes:
    """Return a datum of the schema, in which a few lengths, counts and branches are others."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case [*branches]:
            place = random.randrange(len(branches)) if levels > 0 else 0
            if branches[place] == "L":
                return b"\x02" * random.choice(DEPTHS) + b"\0"
            return long_of_avro(random, place) + avro_value(random, branches[place], levels)
        case "record":
            return b"".join(avro_value(random, each["type"], levels - 1) for each in schema["fields"])
        case "array" | "map":
            return _blocks_of_avro(random, schema, levels)
        case "enum":
            return long_of_avro(random, random.randrange(len(schema["symbols"])))
        case "fixed":
            return random.randbytes(schema["size"])
        case "boolean":
            return random.choice((b"\0", b"\1", b"\1", b"\2"))
        case "int" | "long":
            bits = 31 if kind == "int" else 63
            return long_of_avro(
                random, random.choice([each for each in NUMBERS if each < 1 << bits]) * random.choice((1, -1))
            )
        case "float" | "double":
            size = 4 if kind == "float" else 8
            return random.choice(
                (bytes(size), b"\xff" * size, b"\0" * (size - 2) + b"\xf0\x7f", random.randbytes(size))
            )
        case "null":
            return b""
        case _:
            content = (
                text(random) if kind == "string" else random.randbytes(random.choice((0, 1, 8, 16, 17, 400, 5_000)))
            )
            return long_of_avro(random, len(content)) + content


def _blocks_of_avro(random: Random, schema: Mapping[str, Any], levels: int) -> bytes:
    out = b""
    for _ in range(random.choice((0, 1, 1, 2)) if levels > 0 else 0):
        key = "string" if schema["type"] == "map" else "null"
        inner = schema.get("items", schema.get("values"))
        count = random.choice((1, 1, 2, 3, 1_000, 1_001)) if inner == "null" else random.choice((1, 1, 2, 3))
        items = [avro_value(random, key, levels) + avro_value(random, inner, levels - 1) for _ in range(count)]
        content = b"".join(items)
        sized = long_of_avro(random, -count) + long_of_avro(random, len(content))
        out += random.choice((long_of_avro(random, count), sized)) + content
    return out + b"\0"


def protobuf_value(random: Random, fields: Mapping[int, str], levels: int = 4) -> bytes:
    """Return fields of a message, by number and kind; a few have other wire types, lengths and numbers."""
    out = b""
    for _ in range(random.choice((0, 1, 3, 8)) if levels > 0 else 0):
        number, kind = random.choice(list(fields.items()))
        wire = {"varint": 0, "fixed64": 1, "fixed32": 5}.get(kind, 2)
        if random.randrange(30) == 0:
            number, wire = random.choice((0, 15, 18_999, 2**29 - 1, 2**29, number)), random.randrange(8)
        out += varint(number << 3 | wire) + _payload(random, fields, kind, wire, levels)
    return out


def _payload(random: Random, fields: Mapping[int, str], kind: str, wire: int, levels: int) -> bytes:
    match wire:
        case 0:
            return odd_varint(random)
        case 1 | 5:
            return random.randbytes(8 if wire == 1 else 4)
        case 2:
            content = _content(random, fields, kind, levels)
            return (odd_varint(random) if random.randrange(50) == 0 else varint(len(content))) + content
        case 3:
            return b"\x0b" * random.choice(DEPTHS)
        case _:
            return b""


def _content(random: Random, fields: Mapping[int, str], kind: str, levels: int) -> bytes:
    match kind:
        case "text":
            return text(random)
        case "packed":
            return b"".join(odd_varint(random) for _ in range(random.choice((0, 1, 3, 1_000))))
        case "message" if random.randrange(4) == 0:
            content, tags = b"", random.choice(((4,), (2, 3), (1, 6), (2, 1, 5)))
            for level in range(random.choice((1, 2, 49, 50, 99, 100, 101, 1_000))):
                content = varint(tags[level % len(tags)] << 3 | 2) + varint(len(content)) + content
            return content
        case _:
            return protobuf_value(random, FIELDS.get(kind, fields), levels - 1)


def framed(random: Random, datum: bytes, *, has_indexes: bool) -> bytes:
    """Return the datum in Confluent's frame, for the schema 1; a few name another schema, or none."""
    number = random.choice((1,) * 20 + (0, 2, 2**31 - 1, 2**31, 2**32 - 1))
    indexes = random.choice((b"\0",) * 10 + (b"\2\0", b"\2\1", odd_varint(random), odd_varint(random) + b"\2" * 40))
    return random.choice((b"\0",) * 20 + (b"\1", b"")) + number.to_bytes(4) + (indexes if has_indexes else b"") + datum

"""Takes a chunk and a log value of a sorted table apart, as docs/on-disk.md describes them: a second opinion, which
uses nothing of the code that wrote them."""

import json
from itertools import pairwise
from struct import iter_unpack, unpack, unpack_from
from typing import Any
from zlib import crc32

import cramjam
from crc32c import crc32c

_FIXED = {
    **{f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)}, "double": 8, "timestamp": 8,
}  # fmt: skip
DELETE, WRITE, UPDATE = 1, 2, 3


RECORD_FACTS = (
    "format", "created_ms", "revision", "size", "index_bytes", "unpacked_bytes", "rows", "keys", "deletes",
    "least_timestamp", "greatest_timestamp", "first_key", "last_key",
)  # fmt: skip


def explain_tablet(values: dict[bytes, bytes], types: list[str]) -> dict[str, int]:
    """Take the keys and values of a sorted tablet apart; return how many there are of each kind, and rows of its log
    and chunks. `types`: of the value columns."""
    found: dict[str, int] = {}
    numbers: dict[int, str] = {}

    def count(kind: str, more: int = 1) -> None:
        found[kind] = found.get(kind, 0) + more

    for key, value in values.items():
        letter, rest = key[:1], key[1:]
        if letter == b"f":
            facts = json.loads(value)
            assert (rest, set(facts), facts["format"]) == (b"", {"format", "retained_timestamp"}, 1)
            count("facts")
        elif letter == b"p":
            pivots = json.loads(value)
            keys = [bytes.fromhex(pivot) for pivot in pivots["pivots"]]
            assert (rest, set(pivots), pivots["format"], sorted(set(keys))) == (b"", {"format", "pivots"}, 1, keys)
            count("pivots")
        elif letter == b"l":
            store, _ = unpack(">QQ", rest)
            assert numbers.setdefault(store, "store") == "store"
            count("log values")
            count("logged rows", len(explain_log(value, types)))
        elif letter == b"c":
            _explain_record(json.loads(value), values[b"d" + rest])
            assert numbers.setdefault(unpack(">Q", rest)[0], "chunk") == "chunk"
            count("chunks")
        elif letter == b"d":
            assert b"c" + rest in values
            count("chunk rows", len(explain_chunk(value)[1]))
        elif letter == b"s":
            assert (len(rest), len(value)) == (4, 24)
            count("progress")
        elif letter == b"e":
            assert (rest, {*json.loads(value)}) == (b"", {"run", "count", "last"})
            count("dead letters")
        elif letter == b"x":
            magic, transaction, _, _, _, _ = unpack_from("<4s16sQIQQ", value)
            assert (magic, transaction) == (b"PQT1", rest)
            rows = explain_log(value[48:], types)
            assert all(row[1] == 0 for row in rows)
            count("prepared rows", len(rows))
        elif letter == b"y":
            magic, transaction, _, _, _, _, others = unpack_from("<4s16sQQ16sII", value)
            assert (magic, transaction, len(value)) == (b"PQD1", rest, 60 + 12 * others)
            count("decisions")
        else:
            assert letter == b"t", key
            assert numbers.setdefault(unpack(">QI", rest)[0], "task") == "task"
            count("pieces")
    return found


def _explain_record(record: dict[str, Any], chunk: bytes) -> None:
    """Check that a chunk's record says what the chunk does."""
    assert sorted(record) == sorted(RECORD_FACTS)
    facts, rows = explain_chunk(chunk)
    assert (record["format"], record["size"]) == (1, len(chunk))
    assert record["index_bytes"] == unpack_from("<Q", chunk, len(chunk) - 16)[0] + 24
    assert record["first_key"] == rows[0][0].hex()
    for name in ("unpacked_bytes", "rows", "keys", "deletes", "least_timestamp", "greatest_timestamp", "last_key"):
        assert record[name] == facts[name]


def explain_chunk(chunk: bytes) -> tuple[dict[str, Any], list[list[Any]]]:
    """Facts of a chunk, and its rows: key, timestamp, if it is a delete, each column's bytes (None: null; ...: absent).
    """
    footer = chunk[-24:]
    magic, form, index_bytes, index_crc, footer_crc = unpack("<4sIQII", footer)
    assert (magic, form, footer_crc) == (b"PQSF", 1, crc32c(footer[:20]))
    index = chunk[-24 - index_bytes : -24]
    assert crc32c(index) == index_crc
    magic, blocks, words, facts_bytes = unpack_from("<4sIII", index)
    assert magic == b"PQSI"
    places = list(iter_unpack("<QIIIIII", index[16 : 16 + 32 * blocks]))
    words_at = 16 + 32 * blocks
    filter_words = unpack(f"<{words}Q", index[words_at : words_at + 8 * words])
    facts = json.loads(index[words_at + 8 * words :][:facts_bytes])
    first_keys = index[words_at + 8 * words + facts_bytes :]
    types = [kind for _, kind in facts["key_columns"] + facts["value_columns"]]
    rows: list[list[Any]] = []
    position = 0
    for at, stored_bytes, unpacked_bytes, count, traits, checksum, key_bytes in places:
        assert at == position
        stored = chunk[at : at + stored_bytes]
        assert crc32c(stored) == checksum
        some = _block(bytes(cramjam.lz4.decompress_block(stored, output_len=unpacked_bytes)), types)
        assert len(some) == count
        assert some[0][0] == first_keys[:key_bytes]
        assert traits == _traits(rows, some)
        first_keys, position = first_keys[key_bytes:], position + stored_bytes
        rows += some
    assert (position, first_keys) == (len(chunk) - 24 - index_bytes, b"")
    for key in {row[0] for row in rows}:
        hashed = crc32(key)
        mixed = hashed * 0x9E3779B97F4A7C15 % (1 << 64)
        bits = {mixed >> shift & 63 for shift in (58, 52, 46, 40)}
        assert all(filter_words[hashed % words] >> bit & 1 for bit in bits)
    return facts, rows


def explain_log(value: bytes, types: list[str]) -> list[list[Any]]:
    """The rows of a log value: key, timestamp, kind, and each column's bytes, as `explain_chunk` gives them."""
    rows: list[list[Any]] = []
    position = 0
    while position < len(value):
        magic, columns, zero, count, size = unpack_from("<4sHHII", value, position)
        assert (magic, zero) == (b"PQL1", 0)
        position += 16
        end = position + size
        for _ in range(count):
            version_bytes, key_bytes = unpack_from("<IH", value, position)
            key = value[position + 6 :][:key_bytes]
            version = value[position + 6 + key_bytes :][:version_bytes]
            position += 6 + key_bytes + version_bytes
            rows.append([key, *_version(version, types[:columns])])
        assert position == end
    return rows


def _version(version: bytes, types: list[str]) -> list[Any]:
    timestamp, kind = unpack_from("<QB", version)
    if kind == DELETE:
        assert len(version) == 9
        return [timestamp, kind, []]
    assert kind in (WRITE, UPDATE)
    bitmap = -(-len(types) // 8)
    presence, validity = version[9 : 9 + bitmap], version[9 + bitmap : 9 + 2 * bitmap]
    slot, values = 9 + 2 * bitmap, []
    content = slot + sum(8 if _is_fixed(kind_) else 4 for kind_ in types)
    for number, name in enumerate(types):
        size = 8 if _is_fixed(name) else 4
        found: Any = version[slot : slot + size]
        slot += size
        if not _bit(presence, number):
            found = ...
        elif not _bit(validity, number):
            found = None
        elif size == 4:
            length = int.from_bytes(found, "little")
            found, content = version[content : content + length], content + length
        values.append(found)
    assert content == len(version)
    return [timestamp, kind, values]


def _block(block: bytes, types: list[str]) -> list[list[Any]]:
    magic, rows, count, zero = unpack_from("<4sIII", block)
    assert (magic, zero, count) == (b"PQS1", 0, 4 + 4 * len(types))
    buffers, position = [], -(-(16 + 4 * count) // 8) * 8
    for length in unpack_from(f"<{count}I", block, 16):
        buffers.append(block[position : position + length])
        position += -(-length // 8) * 8
    assert position == len(block)
    bounds = unpack(f"<{rows + 1}I", buffers[0])
    keys = [buffers[1][begin:end] for begin, end in pairwise(bounds)]
    timestamps = unpack(f"<{rows}Q", buffers[2])
    deletes = [bool(buffers[3]) and _bit(buffers[3], row) for row in range(rows)]
    columns = [_column(rows, kind, buffers[4 + 4 * at : 8 + 4 * at]) for at, kind in enumerate(types)]
    return [
        [keys[row], timestamps[row], deletes[row], [column[row] for column in columns]] for row in range(rows)
    ]  # fmt: skip


def _column(rows: int, kind: str, buffers: list[bytes]) -> list[Any]:
    presence, validity, offsets, values = buffers
    if kind == "boolean":
        found = [bytes([_bit(values, row)]) for row in range(rows)]
    elif width := _FIXED.get(kind):
        found = [values[width * row : width * (row + 1)] for row in range(rows)]
    else:
        found = [values[begin:end] for begin, end in pairwise(unpack(f"<{rows + 1}I", offsets))]
    return [
        ... if presence and not _bit(presence, row) else None if validity and not _bit(validity, row) else found[row]
        for row in range(rows)
    ]


def _traits(before: list[list[Any]], rows: list[list[Any]]) -> int:
    keys = [row[0] for row in rows]
    continues = bool(before) and before[-1][0] == keys[0]
    deletes = any(row[2] for row in rows)
    absent = any(... in row[3] for row in rows)
    return continues * 1 | (len(set(keys)) < len(keys)) * 2 | deletes * 4 | absent * 8


def _is_fixed(kind: str) -> bool:
    return kind == "boolean" or kind in _FIXED


def _bit(bitmap: bytes, number: int) -> int:
    return bitmap[number >> 3] >> (number & 7) & 1

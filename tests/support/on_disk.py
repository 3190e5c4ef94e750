"""Takes the bytes of a data directory apart, field by field, as docs/on-disk.md describes them: a second opinion, which
uses nothing of the code that wrote them. Bytes that it cannot name are an error."""

from dataclasses import dataclass, field
from struct import unpack
from typing import Any

from crc32c import crc32c

INLINE_KINDS = {1: "value", 2: "chain", 3: "shared chain"}
TABLETS = {1: "scheme", 2: "PersQueue", 3: "coordinator", 4: "hive", 5: "sorted"}
CHANGES = {1: "put", 2: "delete", 3: "delete range"}
ROWS = "rows of the round"
OPERATIONS = {1: "create row set", 2: "set columns of", 3: "drop row set", 4: "put", 5: "delete"}


@dataclass
class Fields:
    """Bytes that are cut into named fields from the front; `found` has what was cut: name, bytes, meaning."""

    data: bytes
    found: list[tuple[str, bytes, str]] = field(default_factory=list)
    position: int = 0

    def cut(self, size: int, name: str, meaning: str = "") -> bytes:
        raw = self.data[self.position : self.position + size]
        assert len(raw) == size, f"{name}: {len(raw)} of {size} bytes in {self.data.hex()}"
        self.position += size
        self.found.append((name, raw, meaning))
        return raw

    def number(self, size: int, name: str, meanings: dict[int, str] | None = None, *, signed: bool = False) -> int:
        value = int.from_bytes(self.data[self.position : self.position + size], "big", signed=signed)
        assert meanings is None or value in meanings, f"{name} is {value} in {self.data.hex()}"
        self.cut(size, name, f"{value} {meanings[value]}" if meanings else str(value))
        return value

    def text(self, size: int, name: str) -> str:
        value = self.data[self.position : self.position + size].decode()
        self.cut(size, name, repr(value))
        return value

    def constant(self, wanted: bytes, name: str) -> None:
        assert self.cut(len(wanted), name, ascii(wanted.decode())) == wanted, (name, self.data)

    def checksum(self, covered: bytes, name: str, *, seed: int = 0) -> None:
        assert int.from_bytes(self.cut(4, name, "crc32c"), "big") == crc32c(covered, seed), name

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def end(self) -> "Fields":
        assert not self.left, f"{self.left} bytes without a meaning in {self.data.hex()}"
        return self


@dataclass
class Row:
    """One row of the index: what it is, and the fields of its key and value."""

    kind: str
    key: Fields
    value: Fields


def explain_row(key: bytes, value: bytes) -> Row:
    """What a row of the index means."""
    k, v = Fields(key), Fields(value)
    first = k.text(1, "engine")
    if first == "r":
        kind = _floor_row(k, v)
    elif first == "b":
        kind = "blob"
        _blob_id(k)
        if v.number(1, "kind", {0: "here", 1: "in a segment"}) == 0:
            v.checksum(value[5:], "crc")
            v.cut(v.left, "payload")
        else:
            v.number(8, "segment generation")
            v.number(4, "segment number")
            v.number(8, "position")
            v.number(4, "size")
            v.text(v.left, "pool")
    elif first == "s":
        kind = "segment"
        k.text(k.left - 13, "pool")
        k.constant(b"\0", "end of pool")
        k.number(8, "segment generation")
        k.number(4, "segment number")
        v.number(8, "bytes of records")
        v.number(8, "bytes of live records")
    else:
        assert first == "n", key
        kind = "commit number"
        slot = k.number(2, "slot")
        assert v.number(8, "commit number") % 1024 == slot
    k.end()
    v.end()
    return Row(kind, k, v)


def _floor_row(k: Fields, v: Fields) -> str:
    floor = k.text(1, "floor")
    if floor == "C":
        name = k.text(k.left, "fact")
        if name == "format":
            v.number(1, "format")
        elif name == "scheme":
            v.number(1, "form")
            v.number(8, "change of the scheme")
            v.number(1, "ahead")
        else:
            assert name in ("name", "pools")
            v.text(v.left, name)
        return "cell fact"
    k.number(8, "tablet")
    if floor == "T":
        _tablet(v)
        return "tablet"
    if floor == "G":
        return _garbage(k, v)
    assert floor == "K", k.data
    if not k.left:
        _entry_head(v, {1: "value"})
        v.number(8, "user generation")
        return "user generation"
    return _pq_row(k, v)


def _tablet(v: Fields) -> None:
    v.number(1, "format", {1: ""})
    v.number(1, "type", TABLETS)
    v.number(1, "dropping", {0: "no", 1: "yes"})
    v.number(4, "generation")
    for _ in range(v.number(1, "channels")):
        for _ in range(v.number(1, "ranges")):
            v.number(4, "from generation")
            v.number(4, "pool")
    v.text(v.left, "owner")


def _garbage(k: Fields, v: Fields) -> str:
    kind = k.text(1, "kind")
    if kind == "B":
        v.number(1, "format", {1: ""})
        v.number(4, "blocked generation")
        return "block"
    if kind == "K":
        _blob_id(k)
        v.number(1, "flag", {1: "keep", 2: "do not keep"})
        return "keep flag"
    assert kind == "C", k.data
    k.number(1, "channel")
    v.number(1, "format", {1: ""})
    for name in ("generation", "counter", "soft generation", "soft step", "hard generation", "hard step"):
        v.number(4, name)
    v.cut(16, "digest")
    return "barriers"


def _pq_row(k: Fields, v: Fields) -> str:
    kind = k.text(1, "kind")
    k.text(10, "partition")
    if kind in ("d", "x"):
        for separator, digits, name in (
            ("_", 20, "offset"), ("_", 5, "part"), ("_", 10, "records"), ("_", 5, "internal parts"),
        ):  # fmt: skip
            k.constant(separator.encode(), "separator")
            k.text(digits, name)
        is_head = bool(k.left)
        if is_head:
            k.constant(b"|", "head")
        if _entry_head(v, INLINE_KINDS) == 1:
            explain_batches(v, v.left)
        else:
            while v.left:
                _blob_id(v)
        if kind == "x":
            return "part of a batch"
        return "head blob" if is_head else "body blob"
    if kind == "i":
        _entry_head(v, {1: "value"})
        v.number(1, "format", {1: "", 2: "has aborted transactions"})
        v.number(8, "start offset")
        v.number(8, "end offset")
        for _ in range(v.number(4, "epochs")):
            v.number(4, "epoch")
            v.number(8, "first offset")
        return "partition"
    if kind == "a":
        k.constant(b"_", "separator")
        k.text(20, "marker offset")
        _entry_head(v, {1: "value"})
        v.number(1, "format", {1: ""})
        for name in ("producer id", "first offset", "last stable offset"):
            v.number(8, name)
        return "aborted transaction"
    if kind == "c":
        _entry_head(v, {1: "value"})
        v.number(1, "format", {1: ""})
        for name in ("cleaned to", "ended_ms", "tombstones due_ms"):
            v.number(8, name, signed=True)
        return "cleaning"
    assert kind == "m", k.data
    return _producer_or_consumer(k, v)


def _producer_or_consumer(k: Fields, v: Fields) -> str:
    mark = k.text(1, "mark")
    _entry_head(v, {1: "value"})
    form = v.number(1, "format", {1: "", 2: "", 3: ""})
    if mark == "c":
        k.text(k.left, "group")
        for size, name in ((8, "offset"), (4, "leader epoch"), (8, "commit_ms"), (8, "expire_ms")):
            v.number(size, name, signed=True)
        for name in ("session generation", "session step"):
            v.number(8, name, signed=True)
        session_bytes = v.number(2, "session bytes")
        creator_bytes = v.number(2, "creator bytes") if form > 1 else 0
        v.text(session_bytes, "session")
        if form > 1:
            v.text(creator_bytes, "creator")
        v.text(v.left, "metadata")
        return "consumer"
    assert mark == "p", k.data
    k.text(20, "producer id")
    v.number(2, "producer epoch")
    v.number(8, "first sequence")
    v.number(8, "written_ms")
    if form > 1:
        v.number(8, "last timestamp", signed=True)
    batches = v.number(8, "batches")
    if form > 2:
        for size, name in (
            (4, "coordinator epoch"), (8, "marker offset"), (8, "open offset"), (8, "open since ms"),
        ):  # fmt: skip
            v.number(size, name, signed=True)
    for _ in range(batches):
        for name in ("sequence from", "sequence to", "base offset", "log append time"):
            v.number(8, name, signed=True)
    return "producer"


def _entry_head(v: Fields, kinds: dict[int, str]) -> int:
    kind = v.number(1, "form", kinds)
    v.number(8, "created_ms")
    return kind


def _blob_id(fields: Fields) -> None:
    key = fields.data[fields.position : fields.position + 24]
    fields.cut(24, "blob id", blob_id_text(key))


def blob_id_text(key: bytes) -> str:
    """`[tablet:generation:step:channel:cookie:size:part]`."""
    tablet, channel, generation, step = unpack(">QBII", key[:17])
    cookie = int.from_bytes(key[17:20], "big")
    rest = int.from_bytes(key[20:24], "big")
    assert rest >> 30 == 0, "crc mode"
    return f"[{tablet}:{generation}:{step}:{channel}:{cookie}:{rest >> 4 & 0x3FFFFFF}:{rest & 15}]"


def explain_segment(content: bytes, cell: str) -> list[tuple[str, Fields]]:
    """The records of a segment file of a cell: text of the blob's id, or ROWS, and fields."""
    found = []
    position = 0
    while position < len(content):
        record = Fields(content[position:])
        if record.data.startswith(b"PQC2"):
            _commit(record, cell)
            found.append((ROWS, record))
            position += record.position
            continue
        record.constant(b"PQB1", "magic")
        _blob_id(record)
        size = record.number(4, "size")
        record.number(8, "commit number")
        record.number(4, "flags", {0: "", 1: "not synced when acknowledged"})
        pages = -(-size // 32_768)
        record.checksum(record.data[:44] + record.data[48 : 48 + 4 * pages], "crc")
        start = 48 + 4 * pages
        for page in range(pages):
            at = start + page * 32_768
            record.checksum(record.data[at : min(at + 32_768, start + size)], "page crc")
        record.cut(size, "payload")
        found.append((record.found[1][2], record))
        position += record.position
    return found


def explain_commits(content: bytes, cell: str) -> list[Fields]:
    """The records of a file of the commit log."""
    found = []
    position = 0
    while position < len(content):
        record = Fields(content[position:])
        _commit(record, cell)
        found.append(record)
        position += record.position
    return found


def explain_end(content: bytes, cell: str) -> list[Fields]:
    """The slots of a file that says where the commit log ends."""
    assert len(content) == 1024
    slots = [Fields(content[:512]), Fields(content[512:])]
    for slot in slots:
        slot.constant(b"PQE1", "magic")
        slot.number(8, "generation")
        slot.number(8, "commit number")
        slot.checksum(slot.data[:20], "crc", seed=crc32c(cell.encode()))
        slot.constant(bytes(488), "zeros")
        slot.end()
    return slots


def _commit(record: Fields, cell: str) -> None:
    seed = crc32c(cell.encode())
    record.constant(b"PQC2", "magic")
    size = record.number(4, "size")
    flags = record.number(4, "flags", {0: "", 1: "not synced when acknowledged", 2: "begin"})
    record.number(8, "generation")
    record.number(8, "commit number")
    record.number(4, "payload bytes")
    record.checksum(record.data[48 : 48 + size], "crc", seed=seed)
    map_bytes = record.number(4, "map bytes")
    record.checksum(record.data[48 + size : 48 + size + map_bytes], "map crc", seed=seed)
    record.checksum(record.data[:44], "header crc", seed=seed)
    if flags == 2:
        record.number(8, "taken")
        assert size == 8
        return
    count = record.number(4, "changes")
    kinds = record.cut(count, "kinds", "of each change")
    sizes = unpack(f">{2 * count}I", record.cut(8 * count, "sizes"))
    rows = Fields(record.cut(sum(sizes), "keys and values"))
    assert record.position == 48 + size
    for at, kind in enumerate(kinds):
        key, value = (rows.cut(each, "") for each in sizes[2 * at : 2 * at + 2])
        if CHANGES[kind] == "put":
            explain_row(key, value)
        elif CHANGES[kind] == "delete":
            assert not value
    if map_bytes:
        named = record.cut(map_bytes, "map", "of the sectors that are zeros")
        assert 0 not in named
        assert named.endswith(b"\xff")


def explain_batches(fields: Fields, size: int) -> None:
    """Kafka's record batches (version 2), end to end."""
    end = fields.position + size
    while fields.position < end:
        start = fields.position
        fields.number(8, "base offset")
        length = fields.number(4, "batch length")
        fields.number(4, "leader epoch")
        fields.number(1, "magic", {2: ""})
        fields.checksum(fields.data[start + 21 : start + 12 + length], "batch crc")
        fields.cut(40, "batch header", "Kafka's, from the attributes to the number of records")
        fields.cut(start + 12 + length - fields.position, "records", "Kafka's")


def explain_body(payload: bytes) -> Fields:
    """A body: batches, then the sparse index, then the trailer; the index is little-endian."""
    fields = Fields(payload)
    magic, entries, data_bytes, _, _ = unpack("<4sIQqq", payload[-36:-4])
    assert magic == b"PQB1"
    explain_batches(fields, data_bytes)
    for column in ("positions", "offsets", "timestamps"):
        fields.cut(8 * entries, column, str(list(unpack(f"<{entries}q", payload[fields.position :][: 8 * entries]))))
    fields.cut(4, "magic", "'PQB1'")
    for size, name in ((4, "entries"), (8, "bytes of batches"), (8, "end offset"), (8, "largest timestamp")):
        fields.cut(size, name, str(int.from_bytes(payload[fields.position :][:size], "little")))
    assert int.from_bytes(fields.cut(4, "index crc", "crc32c"), "little") == crc32c(payload[data_bytes:-4])
    return fields.end()


def explain_log(blob: bytes) -> tuple[list[Any], list[list[Any]]]:
    """A log blob of a base tablet: first, previous and snapshot blobs; and its operations."""
    assert blob[0] == 1
    value, end = read_value(blob, 1)
    assert end == len(blob)
    *references, operations = value
    return references, operations


def explain_operation(operation: list[Any]) -> str:
    kind, row_set, *rest = operation
    return " ".join([OPERATIONS[kind], row_set, *map(repr, rest)])


def read_value(data: bytes, at: int) -> tuple[Any, int]:
    """A value of a base tablet, and where it ends: a tag, then what the tag says."""
    tag, at = data[at], at + 1
    if tag < 3:
        return (None, False, True)[tag], at
    if tag == 4:
        return unpack(">d", data[at : at + 8])[0], at + 8
    count = shift = 0
    more = True
    while more:
        count |= (data[at] & 0x7F) << shift
        more, shift, at = data[at] > 0x7F, shift + 7, at + 1
    if tag == 3:
        return (count >> 1) ^ -(count & 1), at
    if tag in (5, 6):
        raw = data[at : at + count]
        return (raw.decode() if tag == 5 else raw), at + count
    assert tag in (7, 8), tag
    items = []
    for _ in range(count * (tag - 6)):
        item, at = read_value(data, at)
        items.append(item)
    return (items if tag == 7 else dict(zip(items[::2], items[1::2], strict=True))), at

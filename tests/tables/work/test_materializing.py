"""Records that a worker makes rows of: the last one of each key in each answer, and every record in some answer."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pqbroker.protocol.records import CONTROL, Record, decode_records, encode_batch
from pqbroker.tables.refusals import TableError
from pqbroker.tables.sorted.fed_rows import read_fed_rows
from pqbroker.tables.sorted.rows import encode_deletes, encode_rows
from pqbroker.tables.sorted.schema import read_sorted_schema
from pqbroker.tables.work import materializing
from pqbroker.tables.work.materializing import ANSWER_ROWS, materialize
from pqbroker.tables.work.messages import Message, Stopped

COLUMNS = [
    {"name": "key", "type": "utf8", "sort_order": "ascending", "required": True}, {"name": "value", "type": "string"},
]  # fmt: skip
TABLE = read_sorted_schema(COLUMNS, 10)
DOCUMENT: dict[str, Any] = {
    "table": COLUMNS, "columns": None, "formats": {}, "origins": {"key": "key", "value": "value"}, "topic": "orders",
    "partition": 3, "letters_max": 2, "letter_batch_bytes_max": None,
}  # fmt: skip
PIVOTS = [b"", encode_deletes(TABLE, [{"key": "c"}], "keys")[0].key]
PAIRS = st.lists(
    st.tuples(st.none() | st.sampled_from([b"a", b"b", b"c", b"d", b"\xff"]), st.none() | st.binary(max_size=3)),
    min_size=1, max_size=30,
)  # fmt: skip


class FakeLine:
    """Keeps the answers."""

    def __init__(self, *, is_stopped: bool = False) -> None:
        self.answers: list[tuple[dict[str, Any], bytes]] = []
        self._is_stopped = is_stopped

    def has_unasked(self) -> bool:
        return self._is_stopped

    def send(self, kind: str, document: dict[str, Any], payload: bytes) -> None:
        assert kind == "rows"
        self.answers.append((document, payload))


def fed(line: FakeLine, data: bytes | bytearray, start: int, end: int, **more: Any) -> None:
    document = {**DOCUMENT, "start": start, "end": end, "pivots": [pivot.hex() for pivot in PIVOTS], **more}
    materialize(line, Message("materialize", document, bytes(data)))  # type: ignore[arg-type]


def batches_of(pairs: Sequence[tuple[bytes | None, bytes | None]], sizes: Sequence[int], first: int) -> bytearray:
    data, records = bytearray(), [Record(0, 5, key, value) for key, value in pairs]
    for size in (*sizes, len(records)):
        some, records = records[:size], records[size:]
        if some:
            data += encode_batch(some, base_offset=first, codec=size % 5)
            first += len(some)
    return data


@example([(b"a", b"1"), (b"c", b"1"), (b"a", b"2"), (b"c", None)], [3], 4, 0)
@given(PAIRS, st.lists(st.integers(1, 9), max_size=4), st.integers(1, 4), st.integers(0, 5))
def test_answers_add_up_to_the_last_value_of_each_key(
    pairs: list[tuple[bytes | None, bytes | None]], sizes: list[int], rows_max: int, skipped: int
) -> None:
    line = FakeLine()
    start, end = 100 + min(skipped, len(pairs)), 100 + len(pairs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(materializing, "ANSWER_ROWS", rows_max)
        fed(line, batches_of(pairs, sizes, 100), start, end + 7)
    state: dict[bytes, bytes] = {}
    position = start
    letters = 0
    for document, payload in line.answers:
        by_tablet, batches = read_fed_rows(memoryview(payload), document["tablets"], document["batches"])
        taken = [row for rows in by_tablet.values() for row in rows]
        assert len({row.key for row in taken}) == len(taken)
        assert len(taken) + document["letter_count"] <= rows_max
        assert all((row.key >= PIVOTS[1]) == (tablet == 1) for tablet, rows in by_tablet.items() for row in rows)
        assert (batches, len(document["letters"])) == ([], min(document["letter_count"], 2))
        assert document["next_offset"] >= position
        position = document["next_offset"]
        letters += document["letter_count"]
        state |= dict(taken)
    assert position == end + 7, "the offsets behind the last record are read too"
    read = pairs[start - 100 :]
    assert sum(document["records"] for document, _ in line.answers) == len(read)
    assert letters == sum(key in (None, b"\xff") for key, _ in read)
    wanted: dict[bytes, bytes] = {}
    for key, value in read:
        if key not in (None, b"\xff"):
            row = {"key": key.decode(), "value": {"base64": b64encode(value or b"").decode()}}
            wanted |= dict(
                encode_deletes(TABLE, [{"key": row["key"]}], "keys") if value is None
                else encode_rows(TABLE, [row], "rows", is_update=False)
            )
    assert state == wanted


def test_dead_letters_are_batches_with_reason_and_place_within_the_limit() -> None:
    pairs = [(None, b"v" * 300), (None, b"w" * 5000), (None, b"x" * 300), (None, b"y" * 300)]
    line = FakeLine()
    fed(line, batches_of(pairs, [], 10), 10, 14, letter_batch_bytes_max=3000)
    ((document, payload),) = line.answers
    _, batches = read_fed_rows(memoryview(payload), document["tablets"], document["batches"])
    assert all(len(batch) <= 3000 for batch in batches)
    found = [record for batch in batches for record in decode_records(batch)]
    assert [record.value and record.value[:1] for record in found] == [b"v", None, b"x", b"y"]
    assert [dict(record.headers)["pqbroker.offset"] for record in found] == [b"10", b"11", b"12", b"13"]
    assert dict(found[1].headers) == {
        "pqbroker.reason": b"the record has no key, and the table's key comes from it", "pqbroker.topic": b"orders",
        "pqbroker.partition": b"3", "pqbroker.offset": b"11",
        "pqbroker.left-out": b"key and value are too large for this topic",
    }  # fmt: skip


def test_control_batches_are_passed_over() -> None:
    data = batches_of([(b"a", b"1")], [], 0)
    data += encode_batch([Record(0, 5, b"b", b"2")], base_offset=1, attributes=CONTROL)
    line = FakeLine()
    fed(line, data, 0, 2)
    ((document, _),) = line.answers
    assert (document["records"], document["next_offset"]) == (1, 2)


def test_damage_is_refused_with_its_place() -> None:
    data = batches_of([(b"a", b"1")] * 3, [], 0)
    data[-1] ^= 1
    with pytest.raises(TableError, match="partition 3 from offset 0 on are damaged") as refused:
        fed(FakeLine(), data, 0, 3)
    assert refused.value.code == "CORRUPT_MESSAGE"


def test_a_stop_is_seen_between_answers() -> None:
    pairs = [(b"%d" % number, b"v") for number in range(ANSWER_ROWS + 1)]
    with pytest.raises(Stopped):
        fed(FakeLine(is_stopped=True), batches_of(pairs, [], 0), 0, len(pairs))

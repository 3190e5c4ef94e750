"""The worker's side of a search: what it does with batches that are damaged, moved or gone."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pqbroker.protocol.records import Record, encode_batch
from pqbroker.tables.work.messages import Line, Message
from pqbroker.tables.work.searching import SEARCH_READS_MAX, UNREAD_SHOWN_MAX, search_records

LIMITS = {
    "matches_max": 100, "bytes_max": 1 << 30, "decompressed_bytes_max": 1 << 30, "batch_bytes_max": 1 << 20,
    "answer_bytes_max": 1 << 20, "time_ms": 600_000,
}  # fmt: skip
Shown = Mapping[str, Any]


class ScriptedLine(Line):
    """A broker that shows what the test says; the lines of the answer by kind."""

    def __init__(self, answers: Sequence[tuple[Sequence[Shown], bytes]]) -> None:
        self._answers = list(answers)
        self.asked: list[Mapping[str, Any]] = []
        self.lines: list[dict[str, Any]] = []

    def send(self, kind: str, document: Mapping[str, Any], payload: Any = b"") -> None:
        assert kind == "result"
        self.lines += [json.loads(line) for line in bytes(payload).splitlines()]

    def has_unasked(self) -> bool:
        return False

    def ask(self, kind: str, document: Mapping[str, Any]) -> Message:
        self.asked.append(document)
        stretches, payload = self._answers.pop(0)
        return Message("stretches", {"stretches": stretches}, payload)

    def of(self, kind: str) -> list[Any]:
        return [line[kind] for line in self.lines if kind in line]


def batch(offset: int, *values: bytes) -> bytes:
    return bytes(encode_batch([Record(value=value) for value in values], base_offset=offset))


def searched(line: ScriptedLine, *spans: tuple[int, int, int], text: str = "x") -> ScriptedLine:
    asked = {"topic": "t", "terms": {"text": text}, "spans": spans, "bytes_total": 1, "limits": LIMITS}
    search_records(line, Message("search", asked, b""))
    return line


def in_file(file: Path, data: bytes, next_offset: int, first: int = 0) -> Shown:
    return {"pieces": [[str(file), 0, len(data)]], "next_offset": next_offset, "bounds": [first, next_offset]}


def in_memory(data: bytes, next_offset: int) -> Shown:
    return {"pieces": [len(data)], "next_offset": next_offset, "bounds": None}


def test_a_file_that_holds_something_else_by_now_is_asked_for_again(tmp_path: Path) -> None:
    good, file = batch(0, b"x", b"y") + batch(2, b"x"), tmp_path / "segment"
    bad = bytearray(good)
    bad[-1] ^= 1
    file.write_bytes(bad)
    following = in_file(tmp_path / "gone", good, 9, 3)
    line = searched(ScriptedLine([([in_file(file, good, 3), following], b""), ([in_memory(good, 3)], good)]), (0, 0, 3))
    assert [(each["partition"], each["offset"]) for each in line.of("match")] == [(0, 0), (0, 2)]
    assert [each["is_verified"] for each in line.asked] == [False, True]
    assert line.asked[1]["offset"] == 2  # what was found before the damage is not found twice
    assert line.of("unread") == []


def test_a_file_that_is_gone_again_and_again_is_named(tmp_path: Path) -> None:
    gone = in_file(tmp_path / "gone", b"123", 3)
    data = batch(3, b"x")
    line = ScriptedLine([*[([gone], b"")] * (SEARCH_READS_MAX + 1), ([in_memory(data, 4)], data)])
    searched(line, (0, 0, 4))
    (unread,) = line.of("unread")
    assert (unread["offset"], unread["end_offset"]) == (0, 3)
    assert "gone" in unread["reason"]
    assert [each["offset"] for each in line.of("match")] == [3]


def test_batches_that_are_damaged_are_named_up_to_a_number() -> None:
    count = UNREAD_SHOWN_MAX + 5
    damaged = [{"pieces": [], "next_offset": each + 1, "unread": "it is damaged"} for each in range(count)]
    last = batch(count, b"x")
    line = ScriptedLine([([each], b"") for each in damaged] + [([in_memory(last, count + 1)], last)])
    searched(line, (0, 0, count + 1))
    assert len(line.of("unread")) == UNREAD_SHOWN_MAX
    (end,) = line.of("end")
    assert (end["unread"], end["matches"], end["reason"]) == (count, 1, "end")


def test_records_outside_the_offsets_are_left_out_and_partitions_follow_one_another() -> None:
    first, second = batch(0, b"x", b"x", b"x"), batch(0, b"x", b"x")
    line = ScriptedLine([([in_memory(first, 2)], first), ([in_memory(second, 1)], second)])
    searched(line, (0, 1, 2), (4, 0, 1))
    assert [(each["partition"], each["offset"]) for each in line.of("match")] == [(0, 1), (4, 0)]
    (end,) = line.of("end")
    assert (end["offsets"], end["offsets_total"]) == (2, 2)

"""The worker's side of a search: what it does with batches that are damaged, moved or gone."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pqbroker.protocol.records import Record, encode_batch
from pqbroker.registry.decoding import topic_document
from pqbroker.registry.limits import DecodingLimits
from pqbroker.registry.named import NamedRegistry
from pqbroker.tables.work import searching
from pqbroker.tables.work.messages import Line, Message
from pqbroker.tables.work.searching import SEARCH_READS_MAX, UNREAD_SHOWN_MAX, search_records
from tests.support.schema_registry import TestRegistry, framed, serving

LIMITS = {
    "matches_max": 100, "bytes_max": 1 << 30, "decompressed_bytes_max": 1 << 30, "batch_bytes_max": 1 << 20,
    "decoded_bytes_max": 1 << 20,
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
    return asked_for(line, {"text": text}, spans)


def asked_for(
    line: ScriptedLine, terms: Any, spans: Any, decoding: Any = None, **limits: int
) -> ScriptedLine:
    asked = {
        "topic": "t", "terms": terms, "spans": spans, "bytes_total": 1, "limits": LIMITS | limits,
        "decoding": decoding,
    }  # fmt: skip
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


ORDER: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
}  # fmt: skip


def order(number: int, city: str) -> bytes:
    """Return {"id": number, "city": city} in Avro, of less than 64 each."""
    return bytes((number << 1, len(city) << 1)) + city.encode()


@pytest.fixture(scope="module")
def registry() -> Iterator[TestRegistry]:
    with serving() as running:
        yield running


def decoding_by(registry: TestRegistry, *parts: str, **limits: int) -> dict[str, Any]:
    named = NamedRegistry("main", registry.address)
    return topic_document(dict.fromkeys(parts or ("value",), named), DecodingLimits(**limits))


def shown(*records: Record) -> ScriptedLine:
    data = bytes(encode_batch(records, base_offset=0))
    return ScriptedLine([([in_memory(data, len(records))], data)])


@pytest.mark.parametrize(
    ("terms", "offsets"),
    [
        ({"where": ["id = 41"]}, [1]), ({"where": ["city = Berlin"]}, [0, 3]), ({"where": ["id >= 40"]}, [0, 1]),
        ({"text": '"id":41'}, [1]), ({"text": "BERLIN", "ignore_case": True}, [0, 2, 3]),
        ({"regex": '^{"id":4[01]'}, [0, 1]), ({"regex": "^raw Berlin$"}, [2]), ({"text": "\"city\""}, [0, 1, 3]),
        ({"key": "k1"}, [1]), ({"key": "7"}, [3]), ({"regex": "^k[12]$"}, [1, 2]),
        ({"key": "k1", "where": ["id"]}, [1]), ({"headers": [{"key": "h"}]}, [4]),
        ({"where": ["city = Bonn"], "headers": [{"key": "h"}]}, []),
    ],
)  # fmt: skip
def test_terms_see_what_schemas_decode_and_the_bytes_of_what_none_does(
    registry: TestRegistry, terms: Any, offsets: list[int]
) -> None:
    value, key = registry.add("t-value", ORDER), registry.add("t-key", '"string"')
    whole = registry.add("t-key", '"long"')
    line = shown(
        Record(value=framed(value, order(40, "Berlin"))),
        Record(key=framed(key, b"\x04k1"), value=framed(value, order(41, "Bonn"))),
        Record(key=b"k2", value=b"raw Berlin"),
        Record(key=framed(whole, b"\x0e"), value=b'{"city": "Berlin"}'),
        Record(headers=(("h", b"x"),)),
    )
    asked_for(line, terms, [(0, 0, 5)], decoding_by(registry, "key", "value"))
    assert [each["offset"] for each in line.of("match")] == offsets


def test_a_match_shows_both_parts_and_the_end_counts_records_that_stay_raw(registry: TestRegistry) -> None:
    number = registry.add("t-value", ORDER)
    line = shown(
        Record(key=b"plain", value=framed(number, order(1, "Bonn"))), Record(key=None, value=None),
        Record(key=None, value=framed(9_999, b"Bonn")), Record(key=b"k", value=b"Bonn"),
    )  # fmt: skip
    asked_for(line, {"text": "Bonn"}, [(3, 0, 4)], decoding_by(registry, "key", "value"))
    first, unknown, unframed = line.of("match")
    assert first["decoded"]["value"] == {"schema": number, "type": "AVRO", "content": {"id": 1, "city": "Bonn"}}
    assert first["decoded"]["key"]["code"] == "NOT_FRAMED"
    assert first["value"] == framed(number, order(1, "Bonn")).decode()
    assert unknown["decoded"]["value"]["code"] == "SCHEMA_UNKNOWN"
    assert unframed["decoded"]["value"]["code"] == "NOT_FRAMED"
    (end,) = line.of("end")
    assert (end["undecoded"]["records"], end["undecoded"]["code"]) == (3, "NOT_FRAMED")
    assert (end["undecoded"]["partition"], end["undecoded"]["offset"]) == (3, 0)


def test_parts_that_no_term_looks_at_are_decoded_for_matches_alone(registry: TestRegistry) -> None:
    number = registry.add("t-value", ORDER)
    asked = len(registry.paths)
    records = [Record(key=b"a", value=framed(number, order(1, "x"))), Record(key=b"b", value=b"raw")]
    line = asked_for(shown(*records), {"key": "c"}, [(0, 0, 2)], decoding_by(registry, "value", failure_ms=1))
    assert (line.of("match"), "undecoded" in line.of("end")[0], len(registry.paths)) == ([], False, asked)
    line = asked_for(shown(*records), {"key": "a"}, [(0, 0, 2)], decoding_by(registry, "value", failure_ms=1))
    assert [each["decoded"]["value"]["content"]["id"] for each in line.of("match")] == [1]


def test_a_registry_that_is_down_leaves_records_raw(registry: TestRegistry) -> None:
    number = registry.add("t-value", ORDER)
    value = framed(number, order(2, "Bonn"))
    decoding = decoding_by(registry, failure_ms=60_000)  # no other test has these limits, and so remembers the failure
    registry.is_down = True
    try:
        line = asked_for(shown(*[Record(value=value)] * 3), {"text": "Bonn"}, [(0, 0, 3)], decoding)
    finally:
        registry.is_down = False
    (end,) = line.of("end")
    assert (end["matches"], end["undecoded"]["records"], end["undecoded"]["code"]) == (3, 3, "REGISTRY_UNAVAILABLE")
    assert "503" in end["undecoded"]["reason"]


def test_a_value_that_is_large_as_json_is_searched_as_its_bytes(registry: TestRegistry) -> None:
    fields = [{"name": f"n{at}" + "x" * 990, "type": "null"} for at in range(9)]
    number = registry.add("t-value", {"type": "array", "items": {"type": "record", "name": "N", "fields": fields}})
    records = [Record(value=framed(number, bytes((count << 1, 0)))) for count in (2, 62)]  # of 18 KB and 558 KB
    line = asked_for(shown(*records), {"text": "n8xx"}, [(0, 0, 2)], decoding_by(registry), decoded_bytes_max=20_000)
    assert [each["offset"] for each in line.of("match")] == [0]
    (end,) = line.of("end")
    undecoded = end["undecoded"]
    assert (undecoded["records"], undecoded["code"], undecoded["offset"]) == (1, "VALUE_TOO_LARGE", 1)
    assert "pqbroker.search.decoded.bytes.max = 20000" in undecoded["reason"]


def test_half_of_a_surrogate_pair_in_a_decoded_value_ends_nothing(registry: TestRegistry) -> None:
    value = framed(registry.add("t-value", "{}", "JSON"), b'{"a": "\\ud800b"}')
    line = asked_for(shown(Record(value=value)), {"where": ["a contains b"]}, [(0, 0, 1)], decoding_by(registry))
    assert [each["decoded"]["value"]["content"] for each in line.of("match")] == [{"a": "\ud800b"}]


def test_a_search_whose_time_is_over_within_a_batch_continues_there(
    registry: TestRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = registry.add("t-value", ORDER)
    records = [Record(value=framed(number, order(each, "x"))) for each in range(4)]
    now_s = iter(range(1_000))  # each look at the clock takes a second
    decoding = decoding_by(registry)
    asked_for(shown(*records), {}, [(0, 0, 4)], decoding)  # the registry is asked before the clock is another
    monkeypatch.setattr(searching, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    line = asked_for(shown(*records), {}, [(0, 0, 4)], decoding, time_ms=8_000)
    (end,) = line.of("end")
    seen = [each["offset"] for each in line.of("match")]
    assert end["reason"] == "time"
    assert 0 < len(seen) < 4
    assert end["next_offsets"] == {"0": len(seen)}

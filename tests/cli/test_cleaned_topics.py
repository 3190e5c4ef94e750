"""SQL, exports, followers and materializations of a compacted topic that is written and cleaned meanwhile: each gets
the records that were written, in their order, and at least the last one of each key."""

import contextlib
import json
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.cli.shell import Shell
from tests.faults.cleaning_kills import (
    CONFIG,
    KEYS,
    LAST,
    PARTITIONS,
    TOPIC,
    Book,
    Found,
    clean_all,
    end_of,
    load,
    read_with_librdkafka,
)
from tests.support.depth import examples
from tests.support.waiting import DEADLINE_S, wait_until

SETTINGS = {"log.cleaner.backoff.ms": "10", "log.cleaner.threads": "2", "pqbroker.ballast.bytes": "0"}
SEED = 5
TIMES, READERS = examples(3, least=1), 4
PASSES_WITHIN_S = 60.0
TABLE: dict[str, Any] = {
    "path": "//states",
    "schema": [
        {"name": "key", "type": "utf8", "sort_order": "ascending", "required": True},
        {"name": "value", "type": "utf8"}, {"name": "at", "type": "int64"},
    ],
}  # fmt: skip


class Written:
    """A broker whose topic is written all the time, and what was acknowledged."""

    def __init__(self, running: Broker, books: Sequence[Book]) -> None:
        self.running = running
        self.books = books
        self.calls = HttpCalls(lambda: running.http)

    def owed(self) -> list[dict[bytes, int]]:
        """Return the last offset of each key in each partition, as of now, and let no reader end before them."""
        found = [book.last() for book in self.books]
        for index in range(PARTITIONS):
            end_of(self.running.kafka, index)
        return found

    def check(self, found: Sequence[Found], owed: Sequence[dict[bytes, int]], *, ends_early: bool = False) -> None:
        """`ends_early`: the reader reads up to where the log ended when it began, and a key that was written again
        behind that may be missing, as in Kafka."""
        for book, read, last in zip(self.books, found, owed, strict=True):
            assert read if ends_early else len(read) >= len(last) / 2
            later = {key for key, offset in book.last().items() if offset > last.get(key, -1)} if ends_early else set()
            seen = {key for _, key, _ in read}
            book.check(read, {key: offset for key, offset in last.items() if key in seen or key not in later})

    def wait_for_passes(self, more: int) -> None:
        """Return once the cleaner has been over the topic that many times more."""
        before = self._passes()
        wait_until(lambda: self._passes() >= before + more, f"{more} passes more", PASSES_WITHIN_S)

    def _passes(self) -> int:
        found = self.calls.ask("GET", "/v1/cleaner")
        assert not [one["failure"] for one in found["ended"] if one["failure"]]
        return int(found["passes"])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    books = [Book() for _ in range(PARTITIONS)]
    with broker(tmp_path_factory.mktemp("cleaned") / "data", SETTINGS) as running:
        made = Written(running, books)
        config = CONFIG | {"delete.retention.ms": str(1000 * 60)}
        made.calls.ask("POST", "/v1/topics", {"name": TOPIC, "partitions": PARTITIONS, "config": config})
        with load(running, books, SEED):
            made.wait_for_passes(2)
            yield made


@pytest.fixture
def shell(written: Written, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(written.running.kafka, capsys)


def by_partition(rows: Sequence[tuple[int, int, str, str | None]]) -> list[Found]:
    """Records as offset, key and value, for each partition in their order."""
    found: list[list[tuple[int, bytes, bytes | None]]] = [[] for _ in range(PARTITIONS)]
    for partition, offset, key, value in rows:
        found[partition].append((offset, key.encode(), None if value is None else value.encode()))
    return list(found)


@pytest.mark.spec("G.3")
def test_a_query_reads_the_final_state_while_bodies_are_replaced(written: Written) -> None:
    query = f'SELECT "$tablet_index" AS p, "$row_index" AS n, key, value FROM {TOPIC} ORDER BY p, n'
    for _ in range(TIMES):
        owed = written.owed()
        request = urllib.request.Request(
            f"http://{written.running.http}/v1/sql", json.dumps({"query": query}).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            rows = [json.loads(line) for line in answer]
        written.check(by_partition([(row["p"], row["n"], row["key"], row["value"]) for row in rows]), owed)
        written.wait_for_passes(1)


@pytest.mark.spec("G.3")
def test_an_export_has_the_final_state_while_bodies_are_replaced(
    written: Written, shell: Shell, tmp_path: Path
) -> None:
    for number in range(TIMES):
        owed = written.owed()
        lines, table = tmp_path / f"{number}.jsonl", tmp_path / f"{number}.parquet"
        assert shell("topic", "export", TOPIC, str(lines)).status == 0
        assert shell("topic", "export", TOPIC, str(table)).status == 0
        objects = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
        for rows in (objects, pyarrow.parquet.read_table(table).to_pylist()):
            rows.sort(key=lambda row: (row["partition"], row["offset"]))
            told = [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows]
            written.check(by_partition(told), owed, ends_early=True)
        written.wait_for_passes(1)


@pytest.mark.spec("G.3")
def test_a_follower_from_the_beginning_gets_each_last_record_once(written: Written) -> None:
    """It reads slowly what is replaced meanwhile, then what comes."""
    owed = written.owed()
    last = [book.last() for book in written.books]
    ends = [end_of(written.running.kafka, index) for index in range(PARTITIONS)]
    rows: list[tuple[int, int, str, str | None]] = []
    url = f"http://{written.running.http}/v1/topics/{TOPIC}/records?follow=true&from=beginning"
    with contextlib.closing(urllib.request.urlopen(url, timeout=DEADLINE_S)) as stream:
        reached = [-1] * PARTITIONS
        while any(at < end for at, end in zip(reached, ends, strict=True)):
            line = stream.readline()
            if line.strip():
                one = json.loads(line)
                rows.append((one["partition"], one["offset"], one["key"], one["value"]))
                reached[one["partition"]] = one["offset"]
            if len(rows) == KEYS:
                written.wait_for_passes(1)
    written.check(by_partition(rows), owed, ends_early=True)
    written.check(by_partition(rows), last, ends_early=True)


@pytest.mark.spec("G.3")
def test_a_sorted_table_that_the_topic_feeds_has_the_final_state(written: Written) -> None:
    """The feed begins in a log that was cleaned, and goes on while it is."""
    calls = written.calls
    calls.ask("POST", "/v1/tables", TABLE)
    origins = {"key": "key", "value": "value", "at": "$row_index"}
    calls.ask("POST", "/v1/materializations", {"topic": TOPIC, "table": "states", "columns": origins})
    written.wait_for_passes(3)
    for _ in range(TIMES):
        owed = written.owed()
        ends = [end_of(written.running.kafka, index) for index in range(PARTITIONS)]
        wait_until(partial(is_fed, calls, ends), "the table has what was written", PASSES_WITHIN_S)
        keys = [{"key": f"{number}"} for number in range(KEYS * PARTITIONS)]
        rows = calls.ask("POST", "/v1/tables/states/lookup", {"keys": keys})["rows"]
        found = {row["key"]: row for row in rows if row is not None}
        for book, last in zip(written.books, owed, strict=True):
            for key, offset in last.items():
                row = found.get(key.decode())
                if key == LAST:
                    continue
                if row is None:
                    key_last = book.last()[key]
                    assert book.log[key_last].value is None or key_last > offset
                else:
                    assert row["at"] >= offset
                    assert book.log.get(row["at"]) in (None, (key, row["value"].encode()))
        written.wait_for_passes(1)


def is_fed(calls: HttpCalls, ends: Sequence[int]) -> bool:
    """Return True if the table has had all records up to some offsets."""
    partitions = calls.ask("GET", "/v1/materializations/states")["partitions"]
    return all(one["offset"] > end for one, end in zip(partitions, ends, strict=True))


def test_readers_at_once_share_a_log_that_is_cleaned(written: Written) -> None:
    """Each from the start, and each at another place of it."""

    def read(_: int) -> None:
        owed = written.owed()
        rows = [list(pages_of(written.calls, index)) for index in range(PARTITIONS)]
        written.check(by_partition([row for one in rows for row in one]), owed, ends_early=True)

    with ThreadPoolExecutor(READERS) as threads:
        list(threads.map(read, range(READERS)))


def test_a_backup_has_the_final_state_of_its_moment_and_is_cleaned_on(
    written: Written, shell: Shell, tmp_path: Path
) -> None:
    owed = written.owed()
    made = shell.raw("backup", "cleaned", "--http", written.running.http, "--json").object["directory"]
    assert shell.raw("restore", made, str(tmp_path / "new")).status == 0
    with broker(tmp_path / "new", SETTINGS) as again:
        written.check(read_all(again), owed)
        calls = HttpCalls(lambda: again.http)
        shown = [calls.ask("GET", f"/v1/topics/{TOPIC}/partitions/{index}")["cleaning"] for index in range(PARTITIONS)]
        assert all(one["cleaned_to"] for one in shown)
        clean_all(calls)
        written.check(read_all(again), owed)


def read_all(restored: Broker) -> list[Found]:
    """Read a broker that has records of its own at the end of each partition."""
    address = restored.kafka
    read = [read_with_librdkafka(address, index, end_of(address, index)) for index in range(PARTITIONS)]
    return [[record for record in found if record[1] != LAST] for found in read]


def pages_of(calls: HttpCalls, index: int) -> Iterator[tuple[int, int, str, str | None]]:
    """Records of a partition, page by page, as the console reads them."""
    offset, end_offset = 0, 1
    while offset < end_offset:
        page = calls.ask("GET", f"/v1/topics/{TOPIC}/records?partition={index}&offset={offset}&limit=50")
        for one in page["records"]:
            yield index, one["offset"], one["key"], one["value"]
        offset, end_offset = page["next_offset"], page["end_offset"]

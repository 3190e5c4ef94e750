"""`copy` and `redrive`: each record once, with its key, timestamp and headers, whatever is repeated."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.relays.copying import Copying
from pqbroker.pipeline.relays.journal import Begun, Journal
from tests.spark.relays import Copier, copies
from tests.spark.topics import Topics
from tests.support.drivers.driver import RECENT_MS, Message


@pytest.fixture
def copier(topics: Topics, fresh_name: Callable[[], str], tmp_path: Path) -> Copier:
    """A copy of a fresh topic of two partitions."""
    name = fresh_name()
    topics.client.create_topic(name, partitions=2)
    address = topics.address
    return Copier(topics.spark, Copying(name, f"{name}-copy", tmp_path / "state", address, address))


def produce(topics: Topics, topic: str, first: int, after_last: int) -> None:
    """Numbers as values, the odd ones into partition 1."""
    for partition in range(2):
        numbers = range(first + partition, after_last, 2)
        topics.client.produce(topic, [Message(b"%d" % number) for number in numbers], partition=partition)


def repeat_last_batch(copier: Copier, ends: dict[str, int]) -> None:
    """As after a kill within the last batch, before which the target ended at `ends`."""
    journal = Journal(copier.copying.state)
    last = journal.last()
    assert last is not None
    journal.note(Begun(last.number, ends))
    done = journal.checkpoint / "commits" / str(last.number)
    done.unlink()
    done.with_name(f".{done.name}.crc").unlink()


def test_records_are_copied_whole_and_once(topics: Topics, copier: Copier) -> None:
    topic = copier.copying.topic
    client = Producer({"bootstrap.servers": topics.address, "log_level": 0})
    client.produce(topic, b"value", b"key", 1, timestamp=RECENT_MS, headers=[("h", b"\xff"), ("n", None)])
    client.produce(topic, None, None, 1, timestamp=RECENT_MS + 5)
    client.produce(topic, b"", b"", 0, timestamp=RECENT_MS + 6)
    client.flush()
    copier.run()
    copier.run()
    rows = {(row["partition"], row["offset"]): row for row in copier.rows()}
    assert sorted(rows) == [(0, 0), (1, 0), (1, 1)]
    first, empty, null = rows[1, 0], rows[0, 0], rows[1, 1]
    assert (bytes(first["key"]), bytes(first["value"]), first["ms"]) == (b"key", b"value", RECENT_MS)
    headers = [(header["key"], header["value"] and bytes(header["value"])) for header in first["headers"]]
    places = [("source.name", topic.encode()), ("source.partition", b"1"), ("source.offset", b"0")]
    assert headers[:2] == [("h", b"\xff"), ("n", None)]
    assert [headers[2][0], *headers[3:]] == ["source.job", *places]
    assert (null["key"], null["value"], null["ms"]) == (None, None, RECENT_MS + 5)
    assert (bytes(empty["key"]), bytes(empty["value"]), empty["ms"]) == (b"", b"", RECENT_MS + 6)


def test_a_batch_that_was_written_is_not_written_again(topics: Topics, copier: Copier) -> None:
    produce(topics, copier.copying.topic, 0, 10)
    copier.run()
    repeat_last_batch(copier, {"0": 0, "1": 0})
    copier.run()
    assert copies(copier.rows()) == [(number % 2, number // 2) for number in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)]


def test_what_is_missing_of_a_batch_is_written_and_nothing_else(topics: Topics, copier: Copier) -> None:
    produce(topics, copier.copying.topic, 0, 10)
    copier.run()
    produce(topics, copier.copying.target, 100, 104)
    produce(topics, copier.copying.topic, 10, 20)
    copier.run()
    # The batch lies at 7 to 11 of each partition: these ends hide two records of it, and all, as if never written.
    repeat_last_batch(copier, {"0": 9, "1": 12})
    copier.run()
    counts = Counter(copies(copier.rows()))
    again = {(0, 5), (0, 6), *((1, offset) for offset in range(5, 10))}
    assert counts == {place: 1 + (place in again) for place in product(range(2), range(10))}


def test_order_holds_within_each_partition(topics: Topics, copier: Copier) -> None:
    produce(topics, copier.copying.topic, 0, 4000)
    copier.run(batch_rows_max=1500)
    rows = [row for row in copier.rows() if row["partition"] == 1]
    assert [int(row["value"]) for row in rows] == list(range(1, 4000, 2))


def test_a_state_belongs_to_one_job(topics: Topics, copier: Copier) -> None:
    copier.run()
    with pytest.raises(JobError, match="belongs to another job, of target"):
        copier.run(target="elsewhere")
    with pytest.raises(JobError, match="copied into itself"):
        copier.run(target=copier.copying.topic, state=copier.copying.state / "other")
    topics.client.delete_topic(copier.copying.target)
    with pytest.raises(JobError, match="belongs to another job, of target id"):
        copier.run()


def test_dead_letters_become_what_they_were(topics: Topics, copier: Copier) -> None:
    topic = copier.copying.topic
    where: dict[str, Any] = {"error.topic": b"t", "error.partition": b"1", "error.offset": b"7", "error.reason": b"bad"}
    headers = (("trace", b"\x00"), *where.items())
    letters = f"{topic}.dlq"
    topics.client.create_topic(letters)
    topics.client.produce(letters, [Message(b"{}", b"key", headers)])
    back = Copier(topics.spark, replace(copier.copying, topic=letters, target=topic, are_letters=True))
    (line,) = back.run()
    assert line.startswith("batch 0  1 rows")
    assert back.run() == []
    ((_, record),) = topics.client.read(topic, count=1, partition=1)
    assert (record.key, record.value, record.headers[:2]) == (b"key", b"{}", (("trace", b"\x00"), record.headers[1]))
    assert [name for name, _ in record.headers] == [
        "trace", "source.job", "source.name", "source.partition", "source.offset",
    ]  # fmt: skip

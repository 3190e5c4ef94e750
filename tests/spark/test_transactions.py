"""Spark reads topics with Kafka transactions: committed records alone, and over their markers without a wait."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import col, udf
from pyspark.sql.types import BinaryType

from pqbroker.fixture.http_calls import HttpCalls
from tests.compat.churn import COMPACTED
from tests.spark.topics import Topics, finish
from tests.support.cleaning import settled
from tests.support.serving import Served, is_ours
from tests.support.waiting import wait_until

COMMITTED = {"kafka__isolation__level": "read_committed"}
TIMEOUT_S = 60


class Transactions:
    """A producer of transactions into one topic of two partitions."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": address, "transactional.id": topic, "log_level": 0})
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self, values: Sequence[int], *, keyed: bool = False) -> None:
        """Write records in a transaction, each number into the partition of its parity."""
        self._producer.begin_transaction()
        for value in values:
            key = b"%d" % (value % 4) if keyed else None
            self._producer.produce(self._topic, b"%d" % value, key, value % 2)
        assert self._producer.flush(TIMEOUT_S) == 0

    def end(self, *, is_commit: bool) -> None:
        end = self._producer.commit_transaction if is_commit else self._producer.abort_transaction
        end(TIMEOUT_S)

    def write(self, values: Sequence[int], *, is_commit: bool = True, keyed: bool = False) -> None:
        self.begin(values, keyed=keyed)
        self.end(is_commit=is_commit)


@pytest.fixture
def topic(topics: Topics, fresh_name: Callable[[], str]) -> str:
    name = fresh_name()
    topics.client.create_topic(name, partitions=2)
    return name


@pytest.fixture
def written(topics: Topics, topic: str) -> Transactions:
    """A topic with 0 to 9 committed, 10 to 19 aborted, 20 to 29 committed, and 30 to 39 open."""
    transactions = Transactions(topics.address, topic)
    transactions.write(range(10))
    transactions.write(range(10, 20), is_commit=False)
    transactions.write(range(20, 30))
    transactions.begin(range(30, 40))
    return transactions


def numbers(rows: list[Row]) -> list[int]:
    return sorted(int(row["value"]) for row in rows)


VISIBLE = [*range(10), *range(20, 30)]


def test_a_table_has_committed_records_or_all_by_its_isolation_level(
    topics: Topics, topic: str, written: Transactions
) -> None:
    assert numbers(topics.read(topic, **COMMITTED).collect()) == VISIBLE
    assert numbers(topics.read(topic).collect()) == list(range(40))
    written.end(is_commit=False)
    assert numbers(topics.read(topic, **COMMITTED).collect()) == VISIBLE


def test_a_range_that_begins_or_ends_on_a_marker_waits_for_nothing(
    topics: Topics, topic: str, written: Transactions
) -> None:
    """Partition by partition: records 0 to 4, a marker, 6 to 10 aborted, a marker at 11, 12 to 16, a marker at 17."""
    for first, end, found in ((0, 5, 5), (0, 6, 5), (5, 6, 0), (5, 12, 0), (6, 11, 0), (11, 18, 5), (17, 18, 0)):
        bounds = [json.dumps({topic: {"0": place, "1": place}}) for place in (first, end)]
        rows = topics.read(topic, startingOffsets=bounds[0], endingOffsets=bounds[1], **COMMITTED)
        assert rows.count() == 2 * found, (first, end)


def test_a_stream_waits_for_open_transactions_and_leaves_out_aborted_ones(
    topics: Topics, topic: str, written: Transactions
) -> None:
    table = topic.replace("-", "_")
    stream = topics.stream(topic, **COMMITTED)
    query = stream.writeStream.format("memory").queryName(table).start()

    def has(wanted: list[int]) -> bool:
        query.processAllAvailable()
        return numbers(topics.spark.table(table).collect()) == wanted

    try:
        wait_until(lambda: has(VISIBLE), "the committed records", TIMEOUT_S)
        written.end(is_commit=True)
        wait_until(lambda: has([*VISIBLE, *range(30, 40)]), "those of the open transaction", TIMEOUT_S)
        written.write(range(40, 50), is_commit=False)
        written.write(range(50, 52))
        wait_until(lambda: has([*VISIBLE, *range(30, 40), 50, 51]), "those behind the aborted one", TIMEOUT_S)
    finally:
        query.stop()


@pytest.mark.skipif(not is_ours(), reason="only our broker cleans on command")
def test_a_cleaned_topic_with_aborted_records_has_the_last_committed_value_of_each_key(
    topics: Topics, broker: Served, fresh_name: Callable[[], str]
) -> None:
    """Its last records are aborted, so that the cleaner takes them: holes, and a tail without records."""
    name = fresh_name()
    topics.client.create_topic(name, partitions=2, config={**COMPACTED, "delete.retention.ms": "0"})
    transactions = Transactions(topics.address, name)
    for first in range(0, 40, 8):
        transactions.write(range(first, first + 8), keyed=True)
        transactions.write(range(100 + first, 108 + first), is_commit=False, keyed=True)
    http = broker.http
    assert http is not None
    calls = HttpCalls(lambda: http)
    calls.ask("POST", f"/v1/topics/{name}/clean", {})
    for partition in range(2):
        settled(calls, name, partition)
    assert numbers(topics.read(name, **COMMITTED).collect()) == [36, 37, 38, 39]
    assert numbers(topics.read(name).collect()) == [36, 37, 38, 39], "the aborted ones are gone"


def run(stream: DataFrame, directory: Path) -> None:
    sink = stream.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    finish(sink.option("path", str(directory / "rows")).trigger(availableNow=True).start())


def test_bounded_batches_and_split_partitions_have_each_committed_record_once(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Batches of at most seven offsets, in six tasks: many of them begin, end, or lie whole on markers."""
    transactions = Transactions(topics.address, topic)
    for number in range(8):
        transactions.write(range(4 * number, 4 * number + 4), is_commit=number % 3 != 1)
    visible = [value for value in range(32) if value // 4 % 3 != 1]
    assert numbers(topics.read(topic, minPartitions="6", **COMMITTED).collect()) == visible
    run(topics.stream(topic, maxOffsetsPerTrigger="7", minPartitions="6", **COMMITTED), tmp_path)
    assert numbers(topics.spark.read.parquet(str(tmp_path / "rows")).collect()) == visible


def test_a_killed_task_costs_and_doubles_no_committed_record(topics: Topics, topic: str, tmp_path: Path) -> None:
    transactions = Transactions(topics.address, topic)
    transactions.write(range(10))
    transactions.write(range(10, 20), is_commit=False)
    transactions.write(range(20, 30))
    flag = str(tmp_path / "killed")

    @udf(BinaryType(), useArrow=False)
    def killing_once(value: bytes) -> bytes:
        if value == b"21" and not os.path.exists(flag):
            Path(flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    stream = topics.stream(topic, maxOffsetsPerTrigger="12", **COMMITTED)
    rows = stream.select(killing_once(col("value")).alias("value"))
    with pytest.raises(StreamingQueryException):
        run(rows, tmp_path)
    run(rows, tmp_path)
    assert numbers(topics.spark.read.parquet(str(tmp_path / "rows")).collect()) == VISIBLE


def test_a_query_in_real_time_has_committed_records_as_they_come(
    topics: Topics, topic: str, written: Transactions, fresh_name: Callable[[], str], tmp_path: Path
) -> None:
    target = fresh_name()
    topics.client.create_topic(target)
    rows = topics.stream(topic, **COMMITTED).select("value")
    sink = {"kafka.bootstrap.servers": topics.address, "topic": target, "checkpointLocation": str(tmp_path)}
    writer: Any = rows.writeStream.format("kafka").options(**sink).outputMode("update")
    query = writer.trigger(realTime="5 seconds").start()

    def has(wanted: list[int]) -> bool:
        assert query.isActive, query.exception()
        found = {int(row["value"]) for row in topics.read(target).collect()}
        return sorted(found) == wanted

    try:
        wait_until(lambda: has(VISIBLE), "the committed records", TIMEOUT_S)
        written.end(is_commit=True)
        wait_until(lambda: has([*VISIBLE, *range(30, 40)]), "those of the open transaction", TIMEOUT_S)
        written.write(range(40, 44), is_commit=False)
        written.write([44])
        wait_until(lambda: has([*VISIBLE, *range(30, 40), 44]), "the one behind aborted ones", TIMEOUT_S)
    finally:
        query.stop()

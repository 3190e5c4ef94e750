"""At the log's end Spark's next requests stand behind a Fetch that waits: even by default that must cost nothing."""

import urllib.request
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tests.support.drivers.driver import Message
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.serving import is_ours, served
from tests.support.waiting import wait_until

OVERSTAYS_METRIC = "pqbroker_parked_fetch_overstay_seconds_count"
WORST_METRIC = "pqbroker_parked_fetch_overstay_worst_seconds"
OVERSTAY_MAX_S = 0.25
"""Half of the time for which such a Fetch waits; on a machine that does nothing else it takes less than 5 ms."""


def metric(address: str, name: str) -> float:
    """One figure of the broker's /metrics."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = [float(line.split()[1]) for line in lines if line.startswith(f"{name} ")]
    assert len(found) == 1, f"{name} is not in /metrics"
    return found[0]


@pytest.mark.skipif(not is_ours(), reason="the figure is of our broker's own count")
def test_a_parked_fetch_makes_way_for_the_next_request(spark: SparkSession, fresh_name: Callable[[], str]) -> None:
    name = fresh_name()
    table = name.replace("-", "_")
    with served() as broker:
        assert broker.http is not None
        client = LibrdkafkaDriver(broker.kafka)
        client.create_topic(name)
        source = {"kafka.bootstrap.servers": broker.kafka, "subscribe": name, "startingOffsets": "earliest"}
        stream = spark.readStream.format("kafka").options(**source).load()
        query = stream.writeStream.format("memory").queryName(table).start()

        def read(count: int) -> bool:
            query.processAllAvailable()
            return spark.table(table).count() == count

        try:
            for number in range(5):
                client.produce(name, [Message(b"%d" % number)])
                wait_until(lambda: read(number + 1), "the record in the table")  # noqa: B023
        finally:
            query.stop()
        assert metric(broker.http, OVERSTAYS_METRIC) > 0, "no request came behind a parked Fetch: nothing was tested"
        assert metric(broker.http, WORST_METRIC) < OVERSTAY_MAX_S

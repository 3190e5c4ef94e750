"""A topic grows under load, by Kafka's API, over HTTP and by our command: a running query reads all of it, once."""

from collections.abc import Callable
from functools import partial

from tests.spark.topics import Topics
from tests.support.growth import WAYS_TO_GROW, load
from tests.support.serving import Served
from tests.support.waiting import wait_until

GROWTH_SEEN_S = 60.0


def test_a_running_query_reads_a_topic_that_grows_under_load(
    topics: Topics, broker: Served, fresh_name: Callable[[], str]
) -> None:
    name = fresh_name()
    table = name.replace("-", "_")
    topics.client.create_topic(name, partitions=2)
    query = topics.stream(name).writeStream.format("memory").queryName(table).start()

    def reads(count: int) -> bool:
        rows = topics.spark.sql(f"SELECT DISTINCT partition FROM {table}").collect()
        return {row["partition"] for row in rows} == set(range(count))

    try:
        with load(broker.kafka, name) as written:
            wait_until(partial(reads, 2), "both partitions read", GROWTH_SEEN_S)
            for count, grow in WAYS_TO_GROW:
                grow(broker, name, count)
                wait_until(partial(reads, count), f"{count} partitions read", GROWTH_SEEN_S)
        query.processAllAvailable()
        rows = topics.spark.table(table).collect()
    finally:
        query.stop()
    read = {bytes(row["value"]): (row["partition"], row["offset"]) for row in rows}
    assert len(rows) == len(read)
    assert read == written.places

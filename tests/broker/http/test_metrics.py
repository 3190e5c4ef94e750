"""What /metrics tells: each declared quantity, counted right, in a bounded number of series."""

from collections.abc import Awaitable, Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pqbroker.broker.metrics import FAMILIES, PREFIX
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.records import Record, encode_batch
from tests.broker.conftest import produce_request
from tests.broker.handlers.test_fetch import fetch_request
from tests.broker.http.conftest import Web
from tests.support.metrics_page import PAGE, metrics_page

Values = dict[str, dict[tuple[str, ...], float]]


async def scrape(web: Web) -> Values:
    """Values by sample name, then by the values of its labels in alphabetical order of the labels."""
    found: Values = {}
    for family in text_string_to_metric_families(await web.text("/metrics")):
        for sample in family.samples:
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name.removeprefix(PREFIX), {})[labels] = sample.value
    return found


def test_the_page_matches_the_declarations() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), "run: python -m tests.support.metrics_page"


async def test_every_declared_metric_is_told_with_its_labels(web: Web) -> None:
    await web.node.create_topic("t", pq_max_count_in_partition="1")
    await web.node.produce("t", b"a")
    await web.node.produce("t", b"a")
    await web.ask("GET", "/v1/topics")
    declared = {family.name: set(family.labels) for family in FAMILIES}
    told = {
        family.name.removeprefix(PREFIX): set(family.samples[0].labels) - {"le"}
        for family in text_string_to_metric_families(await web.text("/metrics"))
        if family.samples
    }
    assert told == declared


async def test_what_a_partition_writes_is_counted(web: Web) -> None:
    await web.node.create_topic("t", 2)
    record = Record(0, web.node.clock(), None, b"v")
    batch = encode_batch([record] * 3, producer_id=7, producer_epoch=0, base_sequence=0)
    client = await web.node.connect()
    for _ in range(2):
        await client.ask(produce_request("t", batch, 1), 9)
    bad = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=9)
    await client.ask(produce_request("t", bad, 1), 9)
    values = await scrape(web)
    labels = ("1", "t")
    assert values["partition_written_records_total"][labels] == 3
    assert values["partition_written_bytes_total"][labels] == len(batch)
    assert values["partition_duplicate_records_total"][labels] == 3
    assert values["partition_duplicate_bytes_total"][labels] == len(batch)
    assert values["partition_write_errors_total"] == {("OUT_OF_ORDER_SEQUENCE_NUMBER", *labels): 1}
    assert values["partition_write_cycles_total"] == {("0", "t"): 0, labels: 1}
    assert values["write_cycle_seconds_count"][()] == 1
    assert values["partition_blob_bytes_total"][labels] == len(batch)
    assert values["partition_producers"][labels] == 1
    assert values["partition_head_blobs"][labels] == 1
    assert values["partition_size_bytes"][labels] == len(batch)


async def test_a_refused_commit_is_an_error_and_no_record(web: Web) -> None:
    await web.node.create_topic("t")
    web.node.engine.faults.refuse_next()
    assert (await web.node.produce("t", b"a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    values = await scrape(web)
    assert values["partition_write_errors_total"] == {("KAFKA_STORAGE_ERROR", "0", "t"): 1}
    assert values["partition_written_records_total"][("0", "t")] == 0
    assert values["commits_refused_total"] == {(): 1}


async def test_bytes_written_by_merging_show_in_the_bytes_of_blobs(web: Web) -> None:
    await web.node.create_topic("t")
    for _ in range(40):
        await web.node.produce("t", b"v" * 100)
    values = await scrape(web)
    written = values["partition_written_bytes_total"][("0", "t")]
    assert written < values["partition_blob_bytes_total"][("0", "t")] < 10 * written


async def test_bytes_read_are_counted(web: Web) -> None:
    await web.node.create_topic("t")
    await web.node.produce("t", b"a")
    client = await web.node.connect()
    await client.ask(fetch_request((0, 0)), 12)
    values = await scrape(web)
    assert values["partition_read_bytes_total"] == values["partition_written_bytes_total"]


@pytest.mark.parametrize(
    ("series_max", "labels"),
    [
        (4, {("0", "a"), ("1", "a"), ("2", "a"), ("0", "b")}),
        (3, {("", "a"), ("", "b")}),
        (2, {("", "a"), ("", "b")}),
        (1, {("", "")}),
        (0, {("", "")}),
    ],
)
async def test_series_of_partitions_are_bounded(
    serve: Callable[..., Awaitable[Web]], series_max: int, labels: set[tuple[str, str]]
) -> None:
    web = await serve(metrics_partitions_max=series_max)
    await web.node.create_topic("a", 3)
    await web.node.create_topic("b", 1)
    for partition in range(3):
        await web.node.produce("a", b"v", partition=partition)
        await web.node.produce("a", b"v", partition=9)
    values = await scrape(web)
    assert set(values["partition_end_offset"]) == labels
    assert sum(values["partition_end_offset"].values()) == 3
    assert ("partition_leader_epoch" in values) is (series_max == 4)

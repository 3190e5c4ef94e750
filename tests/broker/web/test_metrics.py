"""What /metrics tells: each declared quantity, counted right, in a bounded number of series."""

import platform
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pqbroker import __version__
from pqbroker.broker.ground.metrics import FAMILIES, PREFIX, samples
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.storage.blobs.blob_storage import Blocked
from pqbroker.storage.tablets.tablet import TabletStorage
from tests.broker.conftest import make_batch, produce_request, until
from tests.broker.kafka.handlers.test_fetch import fetch_request
from tests.broker.services.coordination.classic.test_handlers import form, join_request
from tests.broker.web.conftest import Web
from tests.broker.web.test_materializations import create as create_fed
from tests.broker.web.test_sorted_tables import create, insert, row
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


async def commit_offsets(web: Web, group_id: str, *offsets: tuple[str, int, int]) -> None:
    """Commit topic, partition, offset."""
    states = {(topic, partition): ConsumerOffset(offset) for topic, partition, offset in offsets}
    assert set((await web.node.server.node.cell.current.topics.offsets.commit(group_id, states)).values()) == {None}


def test_the_page_matches_the_declarations() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics_page(), "run: python -m tests.support.metrics_page"


async def test_every_declared_metric_is_told_with_its_labels(web: Web) -> None:
    await web.node.create_topic("t", pq_max_count_in_partition="1")
    await web.node.produce("t", b"a")
    await web.node.produce("t", b"a")
    await web.ask("GET", "/v1/topics")
    await web.ask("POST", "/v1/tables", {"path": "//rows", "schema": [{"name": "id", "type": "int64"}]})
    await create(web)
    await insert(web, row("a", 1))
    await web.ask("POST", "/v1/tables/shop.stock/freeze", {})
    await create_fed(web)
    await web.ask("POST", "/v1/sql", {"query": "SELECT 1"})
    await web.lines("/v1/topics/t/search", {})
    await commit_offsets(web, "g", ("t", 0, 0))
    # told where a listener is encrypted, has a login, or a client is over its quota
    elsewhere = ("tls_", "login", "quota_throttle_ms")
    declared = {family.name: set(family.labels) for family in FAMILIES if not family.name.startswith(elsewhere)}
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
    assert values["partition_producers"][labels] == values["partition_producers_created_total"][labels] == 1
    assert values["partition_producers_forgotten_total"][labels] == 0
    levels = {level: count for (level, *place), count in values["partition_head_blobs"].items() if (*place,) == labels}
    assert levels == {"0": 0, "1": 1, "2": 0, "3": 0}
    assert values["partition_size_bytes"][labels] == len(batch)


@pytest.mark.spec("A.8", "G.8")
async def test_the_time_of_waiting_writes_and_of_pauses_is_measured(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(write_border_bytes=1 << 20)
    await web.node.create_topic("t", pq_write_speed_bytes="1000000")
    clients = [await web.node.connect() for _ in range(2)]
    web.node.engine.faults.hold()
    for number, client in enumerate(clients, 1):
        client.send(produce_request("t", make_batch(bytes(900_000))), 9)
        await until(lambda wanted=number * 900_000: web.node.server.node.metrics.bytes_in > wanted)  # type: ignore[misc]
    labels = ("0", "t")
    values = await scrape(web)
    assert values["partition_in_flight_bytes"][labels] > 1_800_000
    assert values["partition_queue_bytes"][labels] > 900_000
    assert values["partition_queue_wait_seconds_total"][labels] > 0
    assert values["partition_buffer_full_seconds_total"][labels] > 0
    told = values["partition_quota_wait_seconds_total"][labels]
    assert 0 < told <= 0.802, "800 kB over the quota, less what the time between has given"
    web.node.engine.faults.release()
    answers = [await client.receive() for client in clients]
    assert max(answer.throttle_time_ms for answer in answers) >= 1000 * told
    assert (await scrape(web))["partition_in_flight_bytes"][labels] == 0


async def test_a_refused_commit_is_an_error_and_no_record(web: Web) -> None:
    await web.node.create_topic("t")
    web.node.engine.faults.refuse_next()
    assert (await web.node.produce("t", b"a")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    values = await scrape(web)
    assert values["partition_write_errors_total"] == {("KAFKA_STORAGE_ERROR", "0", "t"): 1}
    assert values["partition_written_records_total"][("0", "t")] == 0
    assert values["commits_refused_total"] == {("0",): 1}


async def test_what_key_value_tablets_do_is_counted(web: Web) -> None:
    await web.node.create_topic("t")
    before = await scrape(web)
    assert before["tablet_start_seconds_count"] == {(): 1}
    await web.node.produce("t", b"v" * 2000, producer_id=7, producer_epoch=0, base_sequence=0)
    web.node.engine.faults.refuse_next()
    await web.node.produce("t", b"a")
    after = await scrape(web)
    assert before["kv_request_seconds_count"] == {(): 0}
    assert after["kv_request_seconds_count"] == {(): 1}
    assert after["kv_commands_total"] == {(): 3}, "a blob, the producer, the leader epoch"
    assert after["kv_written_bytes_total"][()] > 2000
    assert after["kv_failed_total"] == {(): 1}
    assert after["blob_puts_total"]["0",] - before["blob_puts_total"]["0",] == 1
    assert after["blob_put_bytes_total"]["0",] - before["blob_put_bytes_total"]["0",] > 2000


async def test_a_write_of_an_instance_that_is_over_is_counted(web: Web) -> None:
    await web.node.create_topic("t")
    topic = web.node.server.node.cell.current.topics.get("t")
    assert topic is not None
    (tablet,) = topic.tablets.values()
    storage = tablet.kv.storage
    await storage.collect_garbage(0, 1, 1)
    await web.node.server.node.cell.current.topics.delete("t")
    await until(lambda: is_blocked(storage))
    values = await scrape(web)
    assert values["garbage_collections_total"] == {("0",): 1}
    assert values["blob_blocked_total"] == {("0",): 1}


def is_blocked(storage: TabletStorage) -> bool:
    try:
        storage.check()
    except Blocked:
        return True
    return False


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


@pytest.mark.parametrize("series_max", [100, 1, 0])
async def test_a_scrape_takes_one_partition_at_a_time(serve: Callable[..., Awaitable[Web]], series_max: int) -> None:
    web = await serve(metrics_partitions_max=series_max)
    await web.node.create_topic("a", 60)
    steps = sum(1 for _ in samples(web.node.server.node.metrics))
    assert steps >= 2 * 60  # what it holds, and the lags of its groups


@pytest.mark.parametrize("series_max", [2, 1])
async def test_a_sum_does_not_fall_when_a_part_of_it_goes(
    serve: Callable[..., Awaitable[Web]], series_max: int
) -> None:
    web = await serve(metrics_partitions_max=series_max)
    await web.node.create_topic("a", 3)
    await web.node.create_topic("b", 1)
    await web.node.produce("a", b"v", b"v", b"v")
    await web.node.produce("b", b"v", b"v")
    told = (await scrape(web))["partition_written_records_total"]
    assert sum(told.values()) == 5
    topic = web.node.server.node.cell.current.topics.get("a")
    assert topic is not None
    topic.partitions[0].writer.counters.written = 0  # as when its tablet starts again
    assert (await scrape(web))["partition_written_records_total"] == told
    await web.node.produce("a", b"v")
    await scrape(web)
    await web.node.server.node.cell.current.topics.delete("b")
    await web.node.create_topic("c")
    left = (await scrape(web))["partition_written_records_total"]
    assert left == ({("", "a"): 4, ("", "c"): 0} if series_max == 2 else {("", ""): 6})
    assert sum((await scrape(web))["partition_end_offset"].values()) == 4, "what is no counter falls"


async def test_groups_are_told_by_state_with_members_and_lag(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(group_initial_rebalance_delay_ms=0)
    await web.node.create_topic("t", 2)
    await web.node.produce("t", b"a", b"b", b"c")
    await form(await web.node.connect())
    await (await web.node.connect()).ask(join_request(group_id="new"), 3)
    await commit_offsets(web, "g", ("t", 0, 1), ("t", 1, 7))
    await commit_offsets(web, "only offsets", ("t", 0, 3))
    values = await scrape(web)
    assert values["groups"] == {
        ("Stable", "classic"): 1, ("CompletingRebalance", "classic"): 1, ("Empty", "classic"): 1,
        ("PreparingRebalance", "classic"): 0, ("Stable", "consumer"): 0, ("Assigning", "consumer"): 0,
        ("Reconciling", "consumer"): 0, ("Empty", "consumer"): 0,
    }  # fmt: skip
    assert values["group_members"] == {("g",): 1, ("new",): 1, ("only offsets",): 0}
    assert values["group_lag_records"] == {("g", "0", "t"): 2, ("g", "1", "t"): 0, ("only offsets", "0", "t"): 0}
    assert values["group_lag_summed"] == {(): 0}


@pytest.mark.parametrize(
    ("series_max", "lags", "members"),
    [
        (4, {("g", "0", "a"): 2, ("g", "1", "a"): 0, ("g", "0", "b"): 1, ("h", "0", "a"): 3}, {("g",), ("h",)}),
        (3, {("g", "", ""): 3, ("h", "", ""): 3}, {("g",), ("h",)}),
        (2, {("g", "", ""): 3, ("h", "", ""): 3}, {("g",), ("h",)}),
        (1, {("", "", ""): 6}, {("",)}),
        (0, {("", "", ""): 6}, {("",)}),
    ],
)
async def test_series_of_groups_are_bounded(
    serve: Callable[..., Awaitable[Web]],
    series_max: int,
    lags: dict[tuple[str, ...], float],
    members: set[tuple[str, ...]],
) -> None:
    web = await serve(metrics_offsets_max=series_max)
    await web.node.create_topic("a", 2)
    await web.node.create_topic("b", 1)
    await web.node.produce("a", b"v", b"v", b"v")
    await web.node.produce("b", b"v")
    await commit_offsets(web, "g", ("a", 0, 1), ("a", 1, 0), ("b", 0, 0))
    await commit_offsets(web, "h", ("a", 0, 0))
    values = await scrape(web)
    assert values["group_lag_records"] == lags
    assert values["group_lag_summed"] == {(): int(series_max < 4)}
    assert set(values["group_members"]) == members


async def test_while_the_cell_is_lost_nothing_is_told_of_groups(web: Web) -> None:
    await web.node.create_topic("t")
    await web.node.engine.open()
    await web.node.produce("t", b"a")
    assert "groups" not in await scrape(web)


async def test_the_process_and_its_version_are_counted(web: Web) -> None:
    before = await scrape(web)
    assert before["build_info"] == {(platform.python_version(), __version__): 1}
    assert before["process_start_time_seconds"][()] == web.node.clock() / 1000
    assert before["process_resident_memory_bytes"][()] > 10 << 20
    assert before["process_threads"][()] >= 1
    _clients = [await web.node.connect() for _ in range(20)]
    after = await scrape(web)
    assert after["process_open_fds"][()] >= before["process_open_fds"][()] + 40
    assert after["process_cpu_seconds_total"][()] > before["process_cpu_seconds_total"][()]

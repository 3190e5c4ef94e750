"""A pass of the cleaner is right beside trims, changed policies, freezes, moved bounds and large bodies."""

import dataclasses
import random
from collections.abc import Iterator
from functools import partial

import pytest

from pqbroker.broker.services.cleaning import cleaning_pass
from pqbroker.broker.services.cleaning.cleaner import due_of
from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.log.cleaned_log import CleanedLog
from pqbroker.pq.log.cleaning_windows import Dirt, WindowLimits, when_due
from pqbroker.pq.log.keys import part_range
from pqbroker.pq.log.partition_settings import Closed
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.tables.work import log_cleaning
from pqbroker.tables.work.messages import Message
from tests.broker.services.cleaning.bench import LIMITS, RETENTION_MS, SETTINGS, Bench, once
from tests.pq.log.test_cleaning_windows import bodies_of
from tests.pq.rig import KIB, MIB, START_MS, check_invariants, check_store
from tests.simulation.compacted_story import PRODUCER

FILLER = b"x" * 300
LARGE = SETTINGS._replace(unpacked_bytes_max=64 * MIB)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of two bodies."""
    monkeypatch.setattr(cleaning_pass, "WindowLimits", partial(WindowLimits, count_max=2))


async def test_of_a_window_whose_oldest_body_is_deleted_meanwhile_the_others_are_cleaned() -> None:
    bench = await Bench().start()
    await bench.bodies([(b"a", b"0")], [(b"b", b"1"), (b"a", b"2")], [(b"b", b"3")], [(b"a", None), (b"c", b"5")])
    bench.acts = [once("body", lambda: bench.server.retention.delete_before(1))]
    record = await bench.clean()
    assert (record.failure, record.bound, record.records_gone, record.bodies_replaced) == ("", 6, 2, 3)
    assert await bench.read() == [(3, b"b", b"3"), (4, b"a", None), (5, b"c", b"5")]
    bench.node.now_ms += RETENTION_MS
    await bench.clean()
    assert await bench.read() == [(3, b"b", b"3"), (5, b"c", b"5")]
    check_invariants(bench.server.state)
    await check_store(bench.node, bench.server)


async def test_the_others_are_cleaned_also_where_their_files_have_to_be_named_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, answers, read = await Bench().start(), 0, log_cleaning._batches

    def moved_at_first(answer: Message, *, is_verified: bool) -> Iterator[memoryview]:
        nonlocal answers
        answers += 1
        if answers % 2:
            raise FileNotFoundError("moved")
        return read(answer, is_verified=is_verified)

    monkeypatch.setattr(log_cleaning, "_batches", moved_at_first)
    await bench.bodies([(b"a", b"0")], [(b"b", b"1")], [(b"b", b"3"), (b"b", b"4")])
    bench.acts = [once("body", lambda: bench.server.retention.delete_before(1))]
    assert (await bench.clean()).failure == ""
    assert await bench.read() == [(3, b"b", b"4")]


@pytest.mark.usefixtures("small_windows")
async def test_a_pass_goes_on_behind_windows_that_are_deleted_meanwhile() -> None:
    bench = await Bench().start()
    await bench.bodies(*([(b"a", b"%d" % number), (b"k%d" % number, FILLER)] for number in range(6)))
    bench.acts = [once("body", lambda: bench.server.retention.delete_before(4), 1)]
    record = await bench.clean()
    assert (record.failure, record.bound) == ("", 12)
    assert [offset for offset, key, _ in await bench.read() if key == b"a"] == [10]
    assert bench.server.state.cleaned == CleanedLog(12, START_MS)


async def test_everything_may_be_deleted_beside_a_pass() -> None:
    bench = await Bench().start()
    await bench.bodies([(b"a", b"0")], [(b"a", b"1")])
    for kind in ("dirty", "window", "body", "cleaned"):
        await bench.bodies([(b"a", b"0")], [(b"a", b"1")])
        bench.acts = [once(kind, lambda: bench.server.retention.delete_before(bench.server.end_offset))]
        record = await bench.clean()
        assert record.failure == ""
        assert await bench.read() == []
    check_invariants(bench.server.state)
    await check_store(bench.node, bench.server)


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("kind", ["dirty", "window", "body", "cleaned"])
async def test_a_pass_stops_where_its_topic_is_compacted_no_more(kind: str) -> None:
    bench = await Bench().start()
    await bench.bodies(*([(b"a", b"%d" % number)] for number in range(4)))
    before = await bench.read()

    async def change() -> None:
        settings = bench.server.state.settings
        bench.server.configure(dataclasses.replace(settings, topic=TopicConfig(cleanup_policy=("delete",))))

    bench.acts = [once(kind, change)]
    record = await bench.clean()
    assert record.failure == "PassStopped()"
    assert bench.server.state.cleaned.end == 0
    assert kind == "cleaned" or await bench.read() == before


async def test_a_pass_over_a_partition_that_is_frozen_stops_and_has_not_failed() -> None:
    bench = await Bench().start()
    await bench.bodies([(b"a", b"0")], [(b"a", b"1")])
    for kind in ("window", "body", "cleaned"):
        open_settings = bench.server.state.settings

        async def freeze() -> None:
            bench.server.configure(dataclasses.replace(bench.server.state.settings, closed={0: Closed.WRITES}))

        bench.acts = [once(kind, freeze)]
        assert (await bench.clean()).failure == "PassStopped()"
        bench.server.configure(open_settings)
    bench.acts = []
    assert (await bench.clean()).failure == ""
    assert await bench.read() == [(1, b"a", b"1")]


async def test_a_batch_of_which_the_first_records_are_deleted_is_cleaned() -> None:
    bench = await Bench().start()
    await bench.bodies([(b"%d" % number, b"0") for number in range(10)], [(b"7", b"1"), (b"8", None)])
    await bench.server.retention.delete_before(5)
    record = await bench.clean()
    assert (record.unread, record.bound) == ([], 12)
    kept = [(offset, key) for offset, key, _ in await bench.read()]
    assert kept == [(5, b"5"), (6, b"6"), (9, b"9"), (10, b"7"), (11, b"8")]
    bench.node.now_ms += RETENTION_MS
    assert (await bench.clean()).tombstones_gone == 1


async def test_a_pass_that_goes_less_far_leaves_the_log_cleaned_as_far_as_it_was() -> None:
    bench = await Bench().start()
    await bench.bodies([(b"a", b"0")], [(b"a", b"1")], [(b"b", None), (b"c", FILLER)])
    await bench.clean()
    cleaned = bench.server.state.cleaned
    assert cleaned == CleanedLog(4, START_MS, START_MS + RETENTION_MS)
    bench.node.now_ms += 5
    await bench.clean(bound=2)
    assert bench.server.state.cleaned == cleaned._replace(ended_ms=START_MS + 5)
    bench.node.now_ms += RETENTION_MS
    await bench.clean()
    assert await bench.read() == [(1, b"a", b"1"), (3, b"c", FILLER)]
    assert bench.server.state.cleaned.due_ms is None


def test_tombstones_that_a_pass_would_not_reach_are_no_reason_for_one() -> None:
    bodies, cleaned = bodies_of(10, 10, created_ms=5000), CleanedLog(20, 1, 5500)
    assert when_due(bodies, cleaned, 20, LIMITS, 9000).reason is Dirt.TOMBSTONES
    assert when_due(bodies, cleaned, 20, LIMITS._replace(lag_ms_min=3500), 9000).reason is Dirt.CLEAN
    assert when_due(bodies, cleaned, 20, LIMITS._replace(lag_ms_min=9000), 9000).reason is Dirt.CLEAN
    assert when_due(bodies, CleanedLog(10, 1), 20, LIMITS._replace(lag_ms_min=9000), 9000).reason is Dirt.YOUNG


async def test_a_body_that_is_larger_than_a_blob_is_stored_in_parts() -> None:
    bench = await Bench().start()
    value = random.Random(0).randbytes(21 * MIB)
    await bench.bodies([(b"old", b"0")], [(b"a", value), (b"old", b"1"), (b"b", value)], [(b"old", b"2")])
    created_ms = bench.server.state.bodies.created[1]
    bench.node.now_ms += 1000
    engine = bench.node.engine
    before = engine.faults.commits
    record = await bench.clean(LARGE)
    assert (record.failure, record.records_gone) == ("", 2)
    assert engine.faults.commits - before > 5
    for _ in range(2):
        assert [(offset, key) for offset, key, _ in await bench.read()] == [(1, b"a"), (3, b"b"), (4, b"old")]
        assert (await bench.read())[1][2] == value
        assert created_ms in bench.server.state.bodies.created
        check_invariants(bench.server.state)
        await check_store(bench.node, bench.server)
        await bench.node.restart()


async def test_a_crash_between_the_parts_of_a_body_leaves_the_old_one_and_nothing_else() -> None:
    value = random.Random(0).randbytes(5 * MIB)
    pairs = [[(b"%d" % number, value)] for number in range(4)]
    for stored in (False, True):
        for after in range(3):
            bench = await Bench().start()
            await bench.bodies(*pairs, [(b"0", b"1")])
            before = await bench.read()
            bench.node.engine.faults.lose_next(after=after, stored=stored)
            with pytest.raises(KafkaError):
                await bench.clean(LARGE)
            await bench.node.restart()
            left = await bench.read()
            assert (left == before) == (after + stored < 2)
            assert {key: value for _, key, value in left} == {key: value for _, key, value in before}
            check_invariants(bench.server.state)
            await check_store(bench.node, bench.server)
            assert (await bench.clean(LARGE)).failure == ""
            assert [offset for offset, _, _ in await bench.read()] == [1, 2, 3, 4]


async def test_parts_of_a_body_that_was_refused_go_with_the_next_write() -> None:
    value = random.Random(0).randbytes(5 * MIB)
    bench = await Bench().start()
    await bench.bodies(*([(b"%d" % number, value)] for number in range(4)), [(b"0", b"1")])
    bench.node.engine.faults.refuse_next(after=1)
    with pytest.raises(KafkaError):
        await bench.clean(LARGE)
    topic = bench.node.topics.get("t")
    assert topic is not None
    kv = topic.tablets[topic.record.tablets[0]].kv
    assert list(kv.keys(*part_range(0)))
    await bench.write((b"c", b"2"))
    assert not list(kv.keys(*part_range(0)))
    await check_store(bench.node, bench.server)
    assert (await bench.clean(LARGE)).failure == ""
    assert [offset for offset, _, _ in await bench.read()] == [1, 2, 3, 4, 5]
    await check_store(bench.node, bench.server)


async def test_a_producer_whose_records_all_went_still_meets_its_duplicates() -> None:
    bench = await Bench().start()

    async def send(sequence: int, value: bytes) -> int:
        view = memoryview(encode_batch(
            [Record(0, START_MS, b"a", value)], producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
        ))  # fmt: skip
        return (await bench.server.write(view, check_produced(view, MIB))).base_offset

    assert [await send(number, b"%d" % number) for number in range(3)] == [0, 1, 2]
    await bench.write((b"a", b"last"))
    await bench.server.flush()
    await bench.clean()
    assert await bench.read() == [(3, b"a", b"last")]
    for _ in range(2):
        assert [await send(number, b"%d" % number) for number in range(3)] == [0, 1, 2]
        await bench.node.restart()
    assert await send(3, b"3") == 4


async def test_passes_and_reads_of_a_body_that_is_damaged_leave_it_alone() -> None:
    bench = await Bench().start()
    values = [b"%d" % number + bytes(20 * KIB) for number in range(3)]
    await bench.bodies([(b"a", values[0])], [(b"b", values[1])], [(b"a", values[2])], [(b"a", None)])
    engine = bench.node.engine
    (blob,) = [key for key in engine._store.blobs if bytes(values[1][:5]) in bytes(engine._store.blobs[key])]
    data = bytearray(engine._store.blobs[blob])
    data[-5000] ^= 1
    engine._store.blobs[blob] = bytes(data)
    await bench.node.restart()
    record = await bench.clean()
    assert record.failure == ""
    assert 1 in record.unread
    assert bench.server.state.cleaned.end == 4
    bench.node.now_ms += 2 * RETENTION_MS
    await bench.clean()
    assert bench.server.state.cleaned.due_ms is None


async def test_a_pass_looks_no_further_than_a_query_that_is_open_reads() -> None:
    bench = await Bench().start()
    await bench.bodies([(b"a", b"0")], [(b"b", b"1")])
    topic = bench.node.topics.get("t")
    assert topic is not None
    scans = bench.server.scans
    assert due_of(topic, bench.server, START_MS, is_forced=True).bound == 2
    scans.open(1)
    scans.open(2)
    scans.open(2)
    await bench.bodies([(b"a", b"2")])
    assert due_of(topic, bench.server, START_MS, is_forced=True).bound == 1
    scans.close(1)
    scans.close(2)
    assert due_of(topic, bench.server, START_MS, is_forced=True).bound == 2
    scans.close(2)
    assert due_of(topic, bench.server, START_MS, is_forced=True).bound == 3

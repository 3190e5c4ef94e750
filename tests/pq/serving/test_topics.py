"""PersQueue groups: creation, growth, configuration, deletion (semantics A.15)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, parse
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import Batch, CommitRefused, DiskFull
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets import reclaiming
from pqbroker.storage.tablets.row_sets import RowChanges
from pqbroker.storage.tablets.scheme_topics import PartitionsNotGrown, TopicChanges, TopicExists, TopicUnknown
from pqbroker.storage.tablets.tablet import TabletType
from tests.pq.rig import DAY_MS, Node, batch, read_all, write

ANOTHER_CELL = CellId(7)


def tablets_of(node: Node) -> list[int]:
    return [item.tablet_id for item in node.cell.tablets().values() if item.type is TabletType.PERSQUEUE]


async def until(is_so: Callable[[], object]) -> None:
    """Let the loop turn until something is so."""
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to be")


async def until_reclaimed(node: Node) -> None:
    await until(lambda: not node.scheme.tombstones)


@pytest.mark.spec("A.15", "K.1", "G.2")
async def test_five_partitions_two_a_tablet_live_in_three_tablets() -> None:
    node = await Node().start()
    topic = await node.topics.create("t", 5, {"pq.partitions.per.tablet": "2"})
    assert len(topic.record.tablets) == len(tablets_of(node)) == 3
    assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3, 4]
    assert node.topics.by_id(topic.record.topic_id) is topic


async def test_partitions_of_one_tablet_do_not_mix() -> None:
    node = await Node().start()
    await node.topic(partitions=4)
    for index in range(4):
        await write(node.partition(index=index), *(batch(b"%d" % index) for _ in range(index + 1)))
    await node.restart()
    for index in range(4):
        assert await read_all(node.partition(index=index)) == [(offset, b"%d" % index) for offset in range(index + 1)]


@pytest.mark.spec("A.15", "K.1", "G.2")
async def test_growth_fills_the_last_tablet_then_adds_and_keeps_offsets() -> None:
    node = await Node().start()
    await node.topics.create("t", 3, {"pq.partitions.per.tablet": "2"})
    await write(node.partition(), batch(b"a"))
    topic = await node.topics.grow("t", 5)
    assert len(topic.record.tablets) == 3
    assert [partition.end_offset for partition in topic.partitions] == [1, 0, 0, 0, 0]
    await write(node.partition(index=4), batch(b"b"))
    await node.restart()
    assert [node.partition(index=index).end_offset for index in range(5)] == [1, 0, 0, 0, 1]


@pytest.mark.spec("A.15", "K.1", "G.2")
async def test_a_group_does_not_shrink() -> None:
    node = await Node().start()
    await node.topic(partitions=3)
    for count in (2, 3):
        with pytest.raises(PartitionsNotGrown):
            await node.topics.grow("t", count)


async def test_a_name_is_given_once() -> None:
    node = await Node().start()
    await node.topic()
    with pytest.raises(TopicExists):
        await node.topic()


async def test_a_wrong_config_creates_nothing() -> None:
    node = await Node().start()
    with pytest.raises(ConfigError):
        await node.topic(config={"retention.ms": "soon"})
    assert list(node.topics.names()) == []
    assert tablets_of(node) == []


async def test_a_config_holds_from_the_next_write_on_and_after_a_restart() -> None:
    node = await Node().start()
    partition = await node.topic()
    topic = await node.topics.reconfigure("t", lambda _: {"message.timestamp.type": "LogAppendTime"})
    assert topic.config.message_timestamp_type == "LogAppendTime"
    assert (await partition.write(*batch(b"a"))).log_append_time_ms == node.now_ms
    await node.restart()
    assert (await node.partition().write(*batch(b"a"))).log_append_time_ms == node.now_ms


async def test_what_is_made_of_a_topic_is_made_once_for_each_record_and_config() -> None:
    topic = await (await Node().start()).topics.create("t", 1, {})
    made: list[int] = []

    def make(known: Topic) -> tuple[int, int]:
        made.append(1)
        return known.record.partitions, known.config.retention_ms

    assert topic.derived(make) is topic.derived(make)
    topic.use(replace(topic.config, retention_ms=5), BrokerSettings())
    assert topic.derived(make) == (1, 5)
    topic.record = replace(topic.record, partitions=2)
    assert topic.derived(make) == topic.derived(make) == (2, 5)
    assert len(made) == 3


@pytest.mark.spec("A.15")
async def test_a_deleted_topic_is_gone_at_once_and_its_space_later() -> None:
    node = await Node().start()
    partition = await node.topic()
    await write(partition, *(batch(size=5000) for _ in range(5)))
    await node.topics.delete("t")
    assert node.topics.get("t") is None
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        await write(partition, batch(b"late"))
    await until_reclaimed(node)
    assert tablets_of(node) == []
    assert node.engine._store.blob_bytes < 5000
    with pytest.raises(TopicUnknown):
        await node.topics.delete("t")


async def test_a_topic_made_again_is_another_one_and_empty() -> None:
    node = await Node().start()
    await write(await node.topic(), batch(b"a"))
    first = node.topics.get("t")
    await node.topics.delete("t")
    partition = await node.topic()
    second = node.topics.get("t")
    assert first is not None
    assert second is not None
    assert first.record.topic_id != second.record.topic_id
    assert set(first.record.tablets).isdisjoint(second.record.tablets)
    assert partition.end_offset == 0


async def test_reclaiming_goes_on_after_a_crash() -> None:
    node = await Node().start()
    await write(await node.topic(), batch(size=5000))
    await node.topics.delete("t")
    await node.restart()
    assert node.topics.get("t") is None
    await until_reclaimed(node)
    assert tablets_of(node) == []


async def test_a_full_disk_puts_reclaiming_off_and_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaiming, "RETRY_S", 0)
    node = await Node().start()
    await write(await node.topic(), batch(size=5000))
    await node.topics.delete("t")
    is_full, shard = True, node.cell._shard
    commit = shard.commit

    def commit_with_room(changes: Batch) -> Outcome[None]:
        if is_full:
            raise DiskFull("there is no room")
        return commit(changes)

    monkeypatch.setattr(shard, "commit", commit_with_room)
    for _ in range(20):
        await asyncio.sleep(0)
    assert tablets_of(node) != []
    is_full = False
    await until_reclaimed(node)
    assert tablets_of(node) == []


async def test_a_tablet_that_no_object_owns_is_reclaimed_at_start() -> None:
    node = await Node().start()
    topic_id = (await node.topics.create("t", 1, {})).record.topic_id
    await node.cell.create_tablets(
        [(TabletId(1 << 20), TabletType.PERSQUEUE, "00"), (TabletId(2 << 20), TabletType.PERSQUEUE, topic_id.hex())]
    )
    await node.restart()
    await until(lambda: len(tablets_of(node)) == 1)


@pytest.mark.parametrize("owner", ["its own id", "the id of a part of it"])
async def test_a_tablet_of_an_object_of_an_unknown_kind_is_kept_over_a_restart(
    owner: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = await Node().start()
    table_id = bytes(range(16))
    topic_id = (await node.topics.create("t", 1, {})).record.topic_id

    def make_table(changes: RowChanges) -> None:
        changes.put("names", ("orders",), {"kind": "table", "id": table_id})

    await node.scheme._tablet.change(make_table)
    owner_id = table_id if owner == "its own id" else bytes(16)
    log, stray = TabletId(1 << 20), TabletId(2 << 20)
    await node.cell.create_tablets(
        [(log, TabletType.PERSQUEUE, owner_id.hex()), (stray, TabletType.PERSQUEUE, topic_id.hex())]
    )
    await node.cell.storage(log).commit(_row(node.cell.storage(log).prefix))
    await node.restart()
    await until(lambda: stray not in tablets_of(node))
    assert log in tablets_of(node)
    assert await node.cell.storage(log).scan(b"", None, 2) == [(b"k", b"v")]
    assert f"tablet {log} is left as it is" in caplog.text
    with pytest.raises(TopicExists):
        await node.topics.create("orders", 1, {})


def _row(prefix: bytes) -> Batch:
    batch = Batch()
    batch.put(prefix + b"k", b"v")
    return batch


async def test_tablets_that_a_crash_kept_from_being_are_created_at_start() -> None:
    node = await Node().start()
    await TopicChanges(node.scheme, node.clock).create("t", 3, {}, 2)
    await node.restart()
    assert await write(node.partition(index=2), batch(b"a"))
    assert len(tablets_of(node)) == 2


async def test_a_refused_creation_leaves_no_half_topic() -> None:
    node = await Node().start()
    creating = asyncio.ensure_future(node.topics.create("t", 1, {}))
    await until(lambda: "t" in node.scheme.topics)
    node.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await creating
    assert "t" not in node.scheme.topics
    assert await node.topic()


@pytest.mark.parametrize("refusals", [1, 2])
async def test_a_growth_whose_tablets_are_refused_is_taken_back_or_completed_at_the_next_look(refusals: int) -> None:
    node = await Node().start()
    await node.topic(partitions=4)
    for number in range(refusals):
        node.engine.faults.refuse_next(after=1 + number)
    with pytest.raises(CommitRefused):
        await node.topics.grow("t", 6)
    topic = node.topics.get("t")
    assert topic is not None
    assert len(topic.partitions) == 4
    assert node.scheme.topics["t"].partitions == (4 if refusals == 1 else 6)
    if refusals == 1:
        await node.topics.grow("t", 6)
    else:
        await node.topics.retain(nobody_knows)
    assert await write(node.partition(index=5), batch(b"a"))
    assert topic.record == node.scheme.topics["t"]


async def half_grown(node: Node) -> None:
    """A topic of four partitions has six in the scheme: their tablet was refused, and so was taking them back."""
    await node.topic(partitions=4)
    for number in range(2):
        node.engine.faults.refuse_next(after=1 + number)
    with pytest.raises(CommitRefused):
        await node.topics.grow("t", 6)


@pytest.mark.parametrize("count", [6, 8])
async def test_growing_a_topic_that_is_half_grown_completes_it(count: int) -> None:
    node = await Node().start()
    await half_grown(node)
    topic = await node.topics.grow("t", count)
    assert len(topic.partitions) == node.scheme.topics["t"].partitions == count
    assert await write(node.partition(index=5), batch(b"a"))


async def test_configuring_a_topic_that_is_half_grown_completes_it() -> None:
    node = await Node().start()
    await half_grown(node)
    topic = await node.topics.reconfigure("t", lambda _: {"retention.ms": "1"})
    assert (len(topic.partitions), topic.config.retention_ms) == (6, 1)
    assert await write(node.partition(index=5), batch(b"a"))


async def test_a_tablet_of_a_topic_that_is_half_grown_can_be_moved() -> None:
    node = await Node().start()
    await half_grown(node)
    topic = node.topics.get("t")
    assert topic is not None
    (tablet_id, *_) = topic.tablets
    await node.topics.owner_of(topic).name_home(tablet_id, ANOTHER_CELL)
    topic.line_up()
    assert len(topic.partitions) == topic.record.partitions == 4
    assert topic.record.home_of(tablet_id) == node.scheme.topics["t"].home_of(tablet_id) == ANOTHER_CELL


async def half_created(node: Node) -> None:
    """A topic is in the scheme: its tablet was refused, and so was taking it back."""
    for number in range(2):
        node.engine.faults.refuse_next(after=1 + number)
    with pytest.raises(CommitRefused):
        await node.topics.create("t", 1, {})
    assert node.topics.get("t") is None


async def test_growing_a_topic_that_is_half_created_completes_it() -> None:
    node = await Node().start()
    await half_created(node)
    assert len((await node.topics.grow("t", 2)).partitions) == 2
    assert await write(node.partition(index=1), batch(b"a"))


async def test_configuring_a_topic_that_is_half_created_completes_it() -> None:
    node = await Node().start()
    await half_created(node)
    assert (await node.topics.reconfigure("t", lambda _: {"retention.ms": "1"})).config.retention_ms == 1
    assert await write(node.partition(), batch(b"a"))


async def test_creating_a_topic_that_is_half_created_completes_it_and_says_that_there_is_one() -> None:
    node = await Node().start()
    await half_created(node)
    with pytest.raises(TopicExists):
        await node.topics.create("t", 1, {})
    assert await write(node.partition(), batch(b"a"))


async def test_what_is_half_done_and_refused_again_can_be_asked_for_again() -> None:
    node = await Node().start()
    await half_created(node)
    node.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await node.topics.grow("t", 2)
    assert len((await node.topics.grow("t", 2)).partitions) == 2


async def test_a_creation_that_could_not_be_taken_back_is_completed_at_the_next_look() -> None:
    node = await Node().start()
    await half_created(node)
    await node.topics.retain(nobody_knows)
    assert await write(node.partition(), batch(b"a"))


async def test_a_stored_config_that_cannot_be_is_told_and_its_default_holds_and_retention_keeps_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = await Node().start()
    await write(await node.topic("old", config={"retention.ms": "1000"}), batch(b"a"))
    config = {"retention.ms": "-7", "pq.max.size.in.partition": "x"}
    await TopicChanges(node.scheme, node.clock).create("bad", 1, config, 1)
    await node.restart()
    assert "topic bad: retention.ms is -7; the least allowed is -1; its default is in force" in caplog.text
    assert "topic bad: pq.max.size.in.partition is 'x'; give a number; its default" in caplog.text
    assert "kafka-configs --alter" in caplog.text
    await write(node.partition("bad"), batch(b"b"))
    node.now_ms += 20 * 365 * DAY_MS
    await node.topics.retain(nobody_knows)
    assert node.partition("old").start_offset == 1
    assert await read_all(node.partition("bad")) == [(0, b"b")]


async def test_a_config_of_another_version_is_told_and_retention_keeps_all(caplog: pytest.LogCaptureFixture) -> None:
    node = await Node().start()
    await TopicChanges(node.scheme, node.clock).create("bad", 1, {"retention.ms": "5", "retention.new": "1"}, 1)
    await node.restart()
    assert "topic bad: retention.new is '1', and no config that this version knows;" in caplog.text
    await write(node.partition("bad"), batch(b"b"))
    node.now_ms += DAY_MS
    await node.topics.retain(nobody_knows)
    assert await read_all(node.partition("bad")) == [(0, b"b")]


async def test_of_two_stored_configs_that_cannot_be_each_can_be_mended_alone() -> None:
    node = await Node().start()
    await TopicChanges(node.scheme, node.clock).create("bad", 1, {"retention.ms": "-7", "retention.bytes": "x"}, 1)
    await node.restart()
    await node.topics.reconfigure("bad", lambda _: {"retention.ms": "5", "retention.bytes": "x"})
    with pytest.raises(ConfigError, match=r"retention.bytes is 'y'"):
        await node.topics.reconfigure("bad", lambda _: {"retention.ms": "5", "retention.bytes": "y"})
    await write(node.partition("bad"), batch(b"b"))
    node.now_ms += DAY_MS
    await node.topics.retain(nobody_knows)
    assert node.partition("bad").start_offset == 0
    await node.topics.reconfigure("bad", lambda _: {"retention.ms": "5"})
    await node.topics.retain(nobody_knows)
    assert node.partition("bad").start_offset == 1


async def test_a_node_is_set_though_a_topics_stored_config_cannot_be() -> None:
    node = await Node().start()
    await TopicChanges(node.scheme, node.clock).create("bad", 1, {"retention.ms": "-7"}, 1)
    await node.restart()
    await node.topics.configure_node("", {}, parse(BrokerSettings, {"message.max.bytes": "9"}))
    topic = node.topics.get("bad")
    assert topic is not None
    assert (topic.config.max_message_bytes, topic.config.retention_ms) == (9, -1)


async def test_a_stopped_node_serves_nothing_and_starts_again() -> None:
    node = await Node().start()
    await write(await node.topic(), batch(b"a"))
    await node.stop()
    assert node.topics.get("t") is None
    await node.restart()
    assert await read_all(node.partition()) == [(0, b"a")]

"""Change feeds of sorted tables: what is written, in which order, what is refused, and the topics that get it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from pqbroker.broker.ground.access import AclKind, AclOperation, DirectCaller, Principal
from pqbroker.broker.node.parts import Node
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.broker.services.access.rules import AclPattern, AclPermission, AclRule
from pqbroker.broker.services.materializing.making import NewMaterialization, create_materialization, drop
from pqbroker.broker.services.sorted_tables.attributes import remount_sorted, set_sorted_attributes
from pqbroker.broker.services.sorted_tables.making import NewSortedTable, create_sorted, delete_sorted
from pqbroker.broker.services.sorted_tables.mounting import change_sorted_state
from pqbroker.broker.services.sorted_tables.resharding import SortedReshard, reshard_sorted
from pqbroker.broker.services.sorted_tables.rows import delete_sorted_rows, insert_sorted, look_up
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.broker.services.tables.making import NewTable
from pqbroker.broker.services.tables.making import create as create_table
from pqbroker.broker.services.tables.mounting import MountChange
from pqbroker.broker.services.topics.topics import create_topic, delete_topic
from pqbroker.broker.services.transactions import transactions
from pqbroker.broker.services.transactions.writes import TableWrite, WriteKind
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topics import TopicIsFeed
from pqbroker.pq.transactions.stored_forms import ParticipantId, PreparedHead, TransactionId
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.tablets.scheme_objects import FEED_CREATORS
from pqbroker.tables.mount import MountCommand
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.rows import encode_rows
from tests.pq.rig import batch
from tests.simulation.feed_story import FedChange, changes_of
from tests.simulation.node import SimulatedNode

SCHEMA = [
    {"name": "id", "type": "int64", "sort_order": "ascending"}, {"name": "text", "type": "utf8"},
    {"name": "n", "type": "int64"},
]  # fmt: skip
ELSEWHERE = ParticipantId(TabletId(99_999))
ONE = TransactionId(b"1" * 16)
UNSET = {"changes": None}


class Site:
    """A node with a table of two tablets, whose changes go to the topic `feed`."""

    def __init__(self, node: SimulatedNode) -> None:
        self.simulated = node

    @property
    def caller(self) -> DirectCaller[Node]:
        return DirectCaller(self.simulated.node)

    @property
    def opened(self) -> Any:
        return self.simulated.owner.current

    @property
    def table(self) -> SortedTable:
        found = self.opened.sorted_tables.get("t")
        assert isinstance(found, SortedTable)
        return found

    def partition(self, index: int = 0) -> PartitionServer:
        found = self.opened.topics.partition("feed", index)
        assert isinstance(found, PartitionServer)
        return found

    async def create(self, name: str = "t", pivots: Any = ([], [10]), **attributes: Any) -> SortedTable:
        return await create_sorted(self.caller, NewSortedTable(f"//{name}", SCHEMA, attributes, pivot_keys=pivots))

    async def insert(self, *rows: dict[str, Any], is_update: bool = False) -> int:
        written = await insert_sorted(self.caller, "t", GivenRows(list(rows)), is_update=is_update)
        return written.timestamp

    async def set(self, **given: Any) -> None:
        """Set attributes, and have them act."""
        await set_sorted_attributes(self.caller, "t", given)
        await remount_sorted(self.caller, "t")

    async def changes(self, index: int = 0) -> list[FedChange]:
        return list(await changes_of(self.partition(index)))

    async def after(self, index: int = 0) -> list[Any]:
        return [change.value["after"] for change in await self.changes(index)]

    async def prepare(self, *keys: int, index: int = 0, transaction: TransactionId = ONE) -> None:
        """Have rows prepared in a tablet, whose decision is made elsewhere."""
        rows = encode_rows(self.table.schema, [{"id": key, "text": "prepared"} for key in keys], "", is_update=False)
        part = self.table.part(index, rows, None)
        part.prepares(PreparedHead(transaction, ELSEWHERE, 0, self.simulated.clock()))
        turn: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        part.enter(turn.set_result)
        refusal = await turn or part.refusal()
        if refusal is not None:
            part.leave()
            raise refusal
        await part.encode(None)
        request = part.participant.kv.execute(part.commands(None))
        await request.wait()
        await part.told(request.exception())

    async def give(self) -> int:
        timestamps, now_ms = self.opened.topics.share.timestamps, self.simulated.clock()
        reservation = timestamps.prepare(now_ms)
        if reservation is not None:
            await reservation
        given: int = timestamps.rule.give(now_ms)
        return given

    async def restart(self) -> None:
        await self.simulated.kill()
        await self.simulated.start()
        for tablet in self.table.tablets:
            await tablet.mounted()

    async def add_cell(self) -> CellId:
        record = await self.opened.others.create("default")
        found: CellId = record.cell
        return found


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    node = SimulatedNode(BrokerSettings())
    await node.start()
    made = Site(node)
    await made.create(changes="feed")
    yield made
    await node.stop()


async def refused(code: str, awaited: Any) -> TableError:
    with pytest.raises(TableError) as found:
        await awaited
    assert found.value.code == code, found.value.message
    return found.value


async def turns_pass() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_the_topic_is_made_with_the_table_with_a_partition_for_each_tablet(site: Site) -> None:
    record = site.opened.topics.get("feed").record
    assert (record.partitions, record.partitions_per_tablet, len(record.tablets)) == (2, 1, 2)


async def test_each_tablet_writes_to_its_partition_in_the_order_of_its_commits(site: Site) -> None:
    first = await site.insert({"id": 1, "text": "a"}, {"id": 11, "n": 1})
    second = await site.insert({"id": 1, "n": 5}, is_update=True)
    third = (await delete_sorted_rows(site.caller, "t", GivenRows([{"id": 1}]))).timestamp
    whole = [{"id": 1, "text": "a", "n": None}, {"id": 1, "text": "a", "n": 5}]
    assert [change.value for change in await site.changes(0)] == [
        {"before": None, "after": whole[0], "transaction": None, "timestamp": first},
        {"before": whole[0], "after": whole[1], "transaction": None, "timestamp": second},
        {"before": whole[1], "after": None, "transaction": None, "timestamp": third},
    ]
    assert [change.key for change in await site.changes(1)] == [{"id": 11}]


async def test_writes_that_share_a_commit_have_their_own_timestamps_and_rows_before(site: Site) -> None:
    stamps = await asyncio.gather(*(site.insert({"id": 1, "n": number}) for number in range(5)))
    found = await site.changes()
    assert [change.value["timestamp"] for change in found] == list(stamps)
    assert [change.value["before"] and change.value["before"]["n"] for change in found] == [None, 0, 1, 2, 3]


async def test_a_write_that_changes_nothing_is_a_change(site: Site) -> None:
    await site.insert({"id": 1, "n": 1})
    await site.insert({"id": 1, "n": 1})
    await delete_sorted_rows(site.caller, "t", GivenRows([{"id": 2}]))
    assert await site.after() == [{"id": 1, "text": None, "n": 1}] * 2 + [None]


async def test_rows_before_a_restart_are_known_after_it(site: Site) -> None:
    await site.insert({"id": 1, "n": 1})
    await site.restart()
    await site.insert({"id": 1, "n": 2})
    assert [change.value["before"] and change.value["before"]["n"] for change in await site.changes()] == [None, 1]


async def test_a_transaction_names_its_changes(site: Site) -> None:
    begun = await transactions.start(site.caller, "test", None)
    rows = GivenRows([{"id": 1, "n": 1}, {"id": 11, "n": 1}])
    committed = await transactions.commit(site.caller, begun.name, [TableWrite("t", WriteKind.ROWS, rows)])
    await site.restart()
    for index in (0, 1):
        (change,) = await site.changes(index)
        assert (change.value["transaction"], change.value["timestamp"]) == (begun.name, committed.timestamp)


async def test_rows_that_were_prepared_are_changes_when_they_are_committed(site: Site) -> None:
    await site.insert({"id": 1, "text": "before"})
    await site.prepare(1)
    assert len(await site.changes()) == 1
    stamp = await site.give()
    await site.table.tablets[0].transactions.finish(ONE, stamp)
    await site.restart()
    (_, change) = await site.changes()
    assert change.value == {
        "before": {"id": 1, "text": "before", "n": None}, "after": {"id": 1, "text": "prepared", "n": None},
        "transaction": ONE.hex(), "timestamp": stamp,
    }  # fmt: skip


async def test_prepared_rows_that_are_dropped_are_no_change(site: Site) -> None:
    await site.prepare(1)
    await site.table.tablets[0].transactions.finish(ONE, None)
    assert await site.changes() == []
    await site.insert({"id": 1, "n": 1})
    assert len(await site.changes()) == 1


async def test_prepared_rows_are_changes_after_a_restart_too(site: Site) -> None:
    await site.prepare(1)
    stamp = await site.give()
    await site.restart()
    await site.table.tablets[0].transactions.finish(ONE, stamp)
    assert [change.value["timestamp"] for change in await site.changes()] == [stamp]


async def test_writes_of_other_rows_wait_for_prepared_ones_so_that_timestamps_rise(site: Site) -> None:
    await site.prepare(1)
    stamp = await site.give()
    writing = asyncio.ensure_future(site.insert({"id": 2, "n": 2}))
    both = asyncio.ensure_future(site.insert({"id": 3, "n": 3}, {"id": 13, "n": 3}))
    await turns_pass()
    assert not writing.done()
    assert not both.done()
    await site.table.tablets[0].transactions.finish(ONE, stamp)
    later = [await writing, await both]
    assert [change.value["timestamp"] for change in await site.changes()] == [stamp, *later]
    assert stamp < later[0] < later[1]


async def test_a_part_of_another_commit_waits_for_prepared_rows_too(site: Site) -> None:
    await site.prepare(1)
    two = TransactionId(b"2" * 16)
    preparing = asyncio.ensure_future(site.prepare(2, transaction=two))
    await turns_pass()
    assert not preparing.done()
    await site.table.tablets[0].transactions.finish(ONE, await site.give())
    await preparing
    await site.table.tablets[0].transactions.finish(two, await site.give())
    assert [change.key["id"] for change in await site.changes()] == [1, 2]


async def test_a_write_that_waits_too_long_for_prepared_rows_is_refused(site: Site) -> None:
    site.table.tablets[0].share.lock_wait_s = 0.02
    await site.prepare(1)
    refusal = await refused("ROW_LOCK_CONFLICT", site.insert({"id": 2, "n": 2}))
    assert ONE.hex() in refusal.message
    await site.table.tablets[0].transactions.finish(ONE, None)
    await site.insert({"id": 2, "n": 2})


async def test_without_a_feed_writes_of_other_rows_pass_prepared_ones(site: Site) -> None:
    await site.set(**UNSET)
    await site.prepare(1)
    await site.insert({"id": 2, "n": 2})
    await site.table.tablets[0].transactions.finish(ONE, None)


async def test_a_commit_that_the_store_refuses_leaves_neither_row_nor_change(site: Site) -> None:
    await site.insert({"id": 1, "n": 1})
    site.simulated.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await site.insert({"id": 1, "n": 2})
    await site.insert({"id": 1, "n": 3})
    assert [row["n"] for row in await site.after()] == [1, 3]
    assert [change.value["before"] and change.value["before"]["n"] for change in await site.changes()] == [None, 1]


async def test_a_commit_that_is_given_up_lets_the_feed_go_on(site: Site) -> None:
    rows = encode_rows(site.table.schema, [{"id": 1, "n": 1}], "", is_update=False)
    part = site.table.part(0, rows, None)
    turn: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    part.enter(turn.set_result)
    assert await turn is None
    stamp = await site.give()
    part.participant.deciding(ONE, stamp)
    await part.encode(stamp)
    assert part.refusal() is None
    part.leave()
    await site.insert({"id": 1, "n": 2})
    (change,) = await site.changes()
    assert (change.value["before"], change.value["after"]["n"]) == (None, 2)


async def test_a_feed_that_is_full_refuses_writes_and_is_named(site: Site) -> None:
    await site.opened.topics.reconfigure("feed", lambda known: {**known, "pq.max.count.in.partition": "1"})
    await site.insert({"id": 1, "n": 1})
    refusal = await refused("CHANGE_FEED_CLOSED", site.insert({"id": 1, "n": 2}))
    assert "'feed'" in refusal.message
    assert "pq.max.count.in.partition=1" in refusal.message
    assert (await look_up(site.caller, "t", [{"id": 1}], None, None))[0] == {"id": 1, "text": None, "n": 1}
    await refused("CHANGE_FEED_CLOSED", site.prepare(2))
    await site.insert({"id": 11, "n": 1})


async def test_prepared_rows_pass_the_limits_of_the_feed(site: Site) -> None:
    await site.prepare(1)
    await site.opened.topics.reconfigure("feed", lambda known: {**known, "pq.max.count.in.partition": "0"})
    site.simulated.engine.tell_colour(Colour.YELLOW_STOP)
    await site.table.tablets[0].transactions.finish(ONE, await site.give())
    assert len(await site.changes()) == 1


async def test_a_disk_without_room_refuses_writes(site: Site) -> None:
    site.simulated.engine.tell_colour(Colour.YELLOW_STOP)
    refusal = await refused("CHANGE_FEED_CLOSED", site.insert({"id": 1, "n": 1}))
    assert "full" in refusal.message
    site.simulated.engine.tell_colour(None)
    await site.insert({"id": 1, "n": 1})


async def test_changes_of_one_commit_take_several_batches(site: Site) -> None:
    await site.opened.topics.reconfigure("feed", lambda known: {**known, "max.message.bytes": "1000"})
    await site.insert(*({"id": key, "text": "x" * 400} for key in range(8)))
    assert [change.key["id"] for change in await site.changes()] == list(range(8))


async def test_a_row_whose_change_no_batch_can_hold_is_refused(site: Site) -> None:
    await site.opened.topics.reconfigure("feed", lambda known: {**known, "max.message.bytes": "1000"})
    refusal = await refused("CHANGE_TOO_LARGE", site.insert({"id": 1, "text": "x" * 1000}))
    assert "'feed'" in refusal.message
    await site.insert({"id": 1, "text": "x"})
    assert len(await site.changes()) == 1


async def test_nobody_else_writes_to_the_feed(site: Site) -> None:
    with pytest.raises(KafkaError, match="change feed of //t") as found:
        await site.partition().write(*batch(b"mine"))
    assert found.value.code == ErrorCode.POLICY_VIOLATION
    await site.set(**UNSET)
    await site.partition().write(*batch(b"mine"))


async def test_a_feed_without_limits_is_no_partition_that_refuses_writes(site: Site) -> None:
    assert site.partition().why_no_writes() is None
    await site.opened.topics.reconfigure("feed", lambda known: {**known, "pq.max.count.in.partition": "0"})
    assert (site.partition().why_no_writes() or "")[0] == "full"


async def test_a_materialization_does_not_bring_changes_back_into_their_table(site: Site) -> None:
    refusal = await refused("INVALID_ORIGINS", create_materialization(site.caller, NewMaterialization("feed", "t")))
    assert "each change would make another one, for ever: //t -> feed -> //t" in refusal.message


async def test_a_topic_that_feeds_the_table_does_not_get_its_changes(site: Site) -> None:
    columns = [{"name": name, "type": kind} for name, kind in (("id", "int64"), ("text", "utf8"), ("n", "int64"))]
    await create_table(site.caller, NewTable("//in", columns, tablet_count=2))
    await create_materialization(site.caller, NewMaterialization("in", "t"))
    assert "in -> //t -> in" in (await refused("INVALID_ATTRIBUTE", site.set(changes="in"))).message


async def test_changes_do_not_go_round_over_several_tables(site: Site) -> None:
    columns: list[dict[str, Any]] = [
        {"name": "id", "type": "int64", "sort_order": "ascending", "required": True}, {"name": "text", "type": "utf8"},
    ]  # fmt: skip
    for name in ("second", "third"):
        attributes = {"changes": f"of_{name}"} if name == "second" else {}
        await create_sorted(site.caller, NewSortedTable(f"//{name}", columns, attributes))
    await create_topic(site.caller.node, "in", 2, {})
    ids = {"id": "$row_index"}
    for topic, table in (("feed", "second"), ("of_second", "third"), ("in", "t")):
        await create_materialization(site.caller, NewMaterialization(topic, table, ids))
    refusal = await refused("INVALID_ATTRIBUTE", set_sorted_attributes(site.caller, "third", {"changes": "in"}))
    assert "in -> //t -> feed -> //second -> of_second -> //third -> in" in refusal.message
    await drop(site.caller, "t")
    again = create_materialization(site.caller, NewMaterialization("of_second", "t", ids))
    assert "//t -> feed -> //second -> of_second -> //t" in (await refused("INVALID_ORIGINS", again)).message


async def test_the_feed_is_kept_from_other_writers_after_a_restart(site: Site) -> None:
    await site.restart()
    with pytest.raises(KafkaError, match="change feed"):
        await site.partition().write(*batch(b"mine"))


async def test_the_feed_is_not_deleted_and_does_not_grow(site: Site) -> None:
    with pytest.raises(TopicIsFeed, match="//t"):
        await delete_topic(site.simulated.node, "feed")
    with pytest.raises(TopicIsFeed):
        await site.opened.topics.grow("feed", 3)
    await set_sorted_attributes(site.caller, "t", UNSET)
    with pytest.raises(TopicIsFeed):
        await delete_topic(site.simulated.node, "feed")
    await remount_sorted(site.caller, "t")
    await delete_topic(site.simulated.node, "feed")
    await site.insert({"id": 1, "n": 1})


async def test_a_deleted_table_leaves_its_feed_as_any_topic(site: Site) -> None:
    await site.insert({"id": 1, "n": 1})
    await delete_sorted(site.caller, "t")
    assert len(await site.changes()) == 1
    await site.partition().write(*batch(b"mine"))


async def test_a_feed_begins_and_ends_with_a_remount(site: Site) -> None:
    await set_sorted_attributes(site.caller, "t", UNSET)
    await site.insert({"id": 1, "n": 1})
    await remount_sorted(site.caller, "t")
    await site.insert({"id": 1, "n": 2})
    await set_sorted_attributes(site.caller, "t", {"changes": "//other/feed"})
    await site.insert({"id": 1, "n": 3})
    await remount_sorted(site.caller, "t")
    await site.insert({"id": 1, "n": 4})
    assert [row["n"] for row in await site.after()] == [1]
    found = await changes_of(site.opened.topics.partition("other.feed", 0))
    assert [(change.value["before"]["n"], change.value["after"]["n"]) for change in found] == [(3, 4)]


async def test_a_feed_does_not_begin_while_rows_are_prepared_and_may_end(site: Site) -> None:
    site.table.tablets[0].share.lock_wait_s = 0.02
    await site.set(**UNSET)
    await site.prepare(1)
    await refused("TRANSACTION_UNDER_WAY", site.set(changes="feed"))
    await site.insert({"id": 2, "n": 2})
    await site.table.tablets[0].transactions.finish(ONE, None)
    await site.set(changes="feed")
    await site.prepare(1)
    await site.set(**UNSET)
    await site.table.tablets[0].transactions.finish(ONE, await site.give())
    assert await site.changes() == []


async def test_a_table_with_a_feed_is_not_resharded(site: Site) -> None:
    await change_sorted_state(site.caller, "t", MountChange(MountCommand.UNMOUNT, is_forced=True))
    wanted = SortedReshard(pivot_keys=[[]])
    refusal = await refused("HAS_CHANGE_FEED", reshard_sorted(site.caller, "t", wanted))
    assert "remount" in refusal.cure
    await site.set(**UNSET)
    await reshard_sorted(site.caller, "t", wanted)


async def test_a_topic_that_exists_gets_changes_if_it_fits(site: Site) -> None:
    config = {"pq.partitions.per.tablet": "1"}
    await create_topic(site.simulated.node, "two", 2, config)
    await create_topic(site.simulated.node, "three", 3, config)
    await create_topic(site.simulated.node, "shared", 2, {"pq.partitions.per.tablet": "2"})
    for wrong, cause in (("three", "3 partitions"), ("shared", "share tablets"), ("t", "itself"), ("a b", "a b")):
        refusal = await refused("INVALID_ATTRIBUTE", site.set(changes=wrong))
        assert "attributes.changes" in refusal.message
        assert cause in refusal.message
    await site.set(changes="two")
    await site.insert({"id": 1, "n": 1})
    assert len(await changes_of(site.opened.topics.partition("two", 0))) == 1


async def test_a_topic_gets_the_changes_of_one_table(site: Site) -> None:
    refusal = await refused("INVALID_ATTRIBUTE", site.create("u", changes="feed"))
    assert "//t" in refusal.message
    assert site.opened.sorted_tables.get("u") is None
    await refused("INVALID_ATTRIBUTE", site.create("u", changes="t"))
    assert site.opened.sorted_tables.get("u") is None


async def test_a_table_whose_topic_cannot_be_made_is_not_made(site: Site) -> None:
    await create_topic(site.simulated.node, "fit.for_none", 2, {"pq.partitions.per.tablet": "1"})
    await refused("INVALID_ATTRIBUTE", site.create("u", changes="fit_for.none"))
    assert site.opened.sorted_tables.get("u") is None
    assert site.opened.topics.get("fit_for.none") is None


async def test_an_ordered_table_gets_changes_if_its_columns_are_theirs(site: Site) -> None:
    columns = [
        {"name": "before", "type": "any"}, {"name": "after", "type": "any"}, {"name": "transaction", "type": "utf8"},
        {"name": "timestamp", "type": "uint64"}, {"name": "$timestamp", "type": "uint64"},
    ]  # fmt: skip
    await create_table(site.caller, NewTable("//log/good", columns, tablet_count=2))
    await create_table(site.caller, NewTable("//log/bad", [{"name": "id", "type": "int64"}], tablet_count=2))
    assert "'id'" in (await refused("INVALID_ATTRIBUTE", site.set(changes="//log/bad"))).message
    await site.set(changes="//log/good")
    stamps = await asyncio.gather(*(site.insert({"id": 1, "n": number}) for number in range(3)))
    partition = site.opened.topics.partition("log.good", 0)
    assert [change.value["timestamp"] for change in await changes_of(partition)] == list(stamps)
    facts = await partition.facts.read(0, 3)
    assert [(fact.row_index, fact.timestamp) for fact in facts] == list(enumerate(stamps))


async def test_partitions_move_with_their_tablets(site: Site) -> None:
    cell = await site.add_cell()
    await site.insert({"id": 1, "n": 1}, {"id": 11, "n": 1})
    change = MountChange(MountCommand.MOUNT, cell=str(cell))
    writing = [asyncio.ensure_future(site.insert({"id": 1, "n": number})) for number in range(2, 6)]
    await change_sorted_state(site.caller, "t", change)
    await asyncio.gather(*writing)
    await site.insert({"id": 1, "n": 6})
    topic = site.opened.topics.get("feed").record
    assert [topic.cell_of(index) for index in range(2)] == [cell, cell]
    assert [row["n"] for row in await site.after()] == [1, 2, 3, 4, 5, 6]


async def test_tablets_move_with_their_partitions(site: Site) -> None:
    cell = await site.add_cell()
    topic = site.opened.topics.get("feed")
    await site.opened.others.move_tablet(site.opened.topics.owner_of(topic), topic.record.tablets[1], cell)
    assert [site.table.record.cell_of(index) for index in range(2)] == [CellId(0), cell]
    await site.insert({"id": 11, "n": 1})
    await site.add_cell()
    await site.opened.others.remove(cell, evacuate=True)
    assert site.table.record.cell_of(1) == site.opened.topics.get("feed").record.cell_of(1) != cell


async def test_a_partition_that_was_left_behind_follows_with_a_remount(site: Site) -> None:
    cell = await site.add_cell()
    site.table.tablets[0].share.lock_wait_s = 0.02
    topic = site.opened.topics.get("feed")
    moves = site.opened.others._moves
    await moves.move(site.opened.topics.owner_of(topic), topic.record.tablets[0], cell)
    assert "another cell" in (await refused("CHANGE_FEED_CLOSED", site.insert({"id": 1, "n": 1}))).message
    await remount_sorted(site.caller, "t")
    await site.insert({"id": 1, "n": 1})
    assert len(await site.changes()) == 1


async def test_a_partition_that_was_left_behind_follows_by_itself_and_lets_transactions_end(site: Site) -> None:
    cell = await site.add_cell()
    site.table.tablets[0].share.lock_wait_s = 0.02
    await site.prepare(1)
    topic = site.opened.topics.get("feed")
    await site.opened.others._moves.move(site.opened.topics.owner_of(topic), topic.record.tablets[0], cell)
    stamp = await site.give()
    with pytest.raises(TableError, match="another cell"):
        await site.table.tablets[0].transactions.finish(ONE, stamp)
    await site.simulated.owner.renew()
    await site.table.tablets[0].transactions.finish(ONE, stamp)
    assert [change.value["timestamp"] for change in await site.changes()] == [stamp]


async def test_writes_wait_while_the_partition_is_restarted(site: Site) -> None:
    await site.insert({"id": 1, "n": 0})
    tablet_id, _ = site.opened.topics.get("feed").record.tablets
    restarting = asyncio.ensure_future(site.simulated.owner.restart_tablet(tablet_id))
    written = await asyncio.gather(*(site.insert({"id": 1, "n": number}) for number in range(1, 4)))
    await restarting
    written.append(await site.insert({"id": 1, "n": 4}))
    assert [change.value["timestamp"] for change in await site.changes()][1:] == written


async def test_writes_wait_while_their_own_tablet_is_restarted(site: Site) -> None:
    restarting = asyncio.ensure_future(site.simulated.owner.restart_tablet(site.table.record.tablets[0]))
    written = await asyncio.gather(*(site.insert({"id": 1, "n": number}) for number in range(4)))
    await restarting
    assert [change.value["timestamp"] for change in await site.changes()] == list(written)


async def test_a_tablet_that_is_held_while_its_write_waits_for_the_feed_writes_it_later(site: Site) -> None:
    topic, moves, cell = site.opened.topics.get("feed"), site.opened.others._moves, await site.add_cell()
    owner = site.opened.topics.owner_of(topic)
    await moves.move(owner, topic.record.tablets[0], cell)
    writing = [asyncio.ensure_future(site.insert({"id": 1, "n": number})) for number in range(3)]
    await turns_pass()
    await site.simulated.owner.restart_tablet(site.table.record.tablets[0])
    await moves.move(owner, topic.record.tablets[0], CellId(0))
    stamps = await asyncio.gather(*writing)
    assert [change.value["timestamp"] for change in await site.changes()] == list(stamps)
    assert [row["n"] for row in await site.after()] == [0, 1, 2]


async def test_what_is_written_is_counted(site: Site) -> None:
    counters = site.table.tablets[0].share.changes
    await site.insert({"id": 1, "n": 1}, {"id": 2, "n": 1})
    site.simulated.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await site.insert({"id": 1, "n": 2})
    assert counters.records == 2
    assert 100 < counters.bytes_written < 1000


async def test_a_change_feed_has_the_rights_of_who_named_it_at_each_mount(site: Site) -> None:
    rules = RuleAccess(("User:root",), allows_unruled=False, decisions_max=lambda: 100)
    node = replace(site.simulated.node, access=rules)
    bob, root = (DirectCaller(node, Principal("User", name)) for name in ("bob", "root"))
    reads = AclRule(AclKind.TOPIC, AclPattern.LITERAL, "t", "User:bob", "*", AclOperation.READ, AclPermission.ALLOW)
    rules.follow(reads, {})
    rules.follow(reads._replace(operation=AclOperation.ALTER_CONFIGS), {})
    for operation in (AclOperation.CREATE, AclOperation.ALTER):
        rules.follow(reads._replace(name="other", operation=operation), {})
    await set_sorted_attributes(bob, "t", {"changes": "other"})
    await remount_sorted(root, "t")
    rules.follow(reads, None)
    with pytest.raises(KafkaError, match="rights of who named it: User:bob has no permission for READ") as found:
        await remount_sorted(root, "t")
    assert found.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await site.restart()
    with pytest.raises(KafkaError, match="User:bob has no permission for READ on topic t"):
        await remount_sorted(replace(root, node=replace(site.simulated.node, access=rules)), "t")
    root = replace(root, node=replace(site.simulated.node, access=rules))
    await set_sorted_attributes(root, "t", {"changes": "other"})
    await remount_sorted(root, "t")
    assert len(site.opened.scheme.rows(FEED_CREATORS)) == 1
    await delete_sorted(root, "t")
    assert not site.opened.scheme.rows(FEED_CREATORS)


async def test_a_table_with_a_change_feed_is_made_by_who_may_read_it(site: Site) -> None:
    rules = RuleAccess((), allows_unruled=False, decisions_max=lambda: 100)
    caller = DirectCaller(replace(site.simulated.node, access=rules), Principal("User", "bob"))
    made = AclRule(AclKind.TOPIC, AclPattern.PREFIXED, "n", "User:bob", "*", AclOperation.CREATE, AclPermission.ALLOW)
    rules.follow(made, {})
    wanted = NewSortedTable("//new", SCHEMA, {"changes": "news"})
    with pytest.raises(KafkaError, match="no permission for READ on topic new"):
        await create_sorted(caller, wanted)
    rules.follow(made._replace(operation=AclOperation.READ), {})
    assert (await create_sorted(caller, wanted)).record.attributes["changes"] == "news"

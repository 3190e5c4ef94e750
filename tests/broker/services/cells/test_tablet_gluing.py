"""Tablets glued into one, step by step: which rows are there, whatever is refused or lost, and what is left."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from pqbroker.broker.services.cells import tablet_gluing
from pqbroker.broker.services.cells.tablet_gluing import Glue, TabletGluing
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.serving.joint_write import Share, write_together
from pqbroker.protocol import records
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL, TabletId
from pqbroker.storage.kv.tablet_copy import TabletCopy
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme_state import Resharded, TableRecord, TopicRecord
from pqbroker.storage.tablets.scheme_topics import TopicUnknown
from pqbroker.storage.unreadable import StoredUnreadable
from tests.broker.services.cells.memory_cells import CONFIG, ONE, TWO, MemoryCells, memory_cells
from tests.pq.rig import KIB, START_MS, batch, query, table_that_keeps_facts, values_of, write
from tests.pq.serving.test_replaced_bodies import thinned

OLD_MS = START_MS - 1_000_000


class Bench(MemoryCells):
    """The table t with a tablet in each of the cells 1 and 2, which are glued in cell 1."""

    made: TabletId
    """The tablet that the last gluing made."""

    async def glue(self) -> None:
        opened = self.opened
        gluing = TabletGluing(opened.scheme, opened.topics, opened.cells)
        await gluing.reshard(self.topic, Glue(0, [1]), self._resharded)

    def _resharded(self, record: TopicRecord, tablet_id: TabletId) -> Resharded:
        if record.partitions < 2:
            raise BundleRefused("there is one tablet")
        self.made = tablet_id
        return self.without_the_second(record)._replace(replaced={0: tablet_id})

    def without_the_second(self, record: TopicRecord) -> Resharded:
        """Return the table with its first tablet alone."""
        assert record.table is not None
        table = record.table
        glued = replace(
            table, states=table.states[:1], first_rows=table.first_rows[:1],
            mounted=table.mounted.rearranged([0], table.attributes),
        )  # fmt: skip
        return Resharded(replace(record, table=glued), [0])

    async def timestamps(self) -> list[int]:
        """Of every record."""
        server = self.partition()
        read = server.read(query(server, 0, KIB * KIB))
        found = read if isinstance(read, Batches) else await read
        data = memoryview(b"".join(found.in_memory()))
        every = (data[position : position + header.size_bytes] for position, header in records.batches(data))
        return [record.timestamp for one in every for record in records.decode_records(one)]


async def create(bench: Bench, table: TableRecord | None = None) -> None:
    await bench.opened.topics.create("t", 2, CONFIG, table or table_that_keeps_facts(2))
    assert bench.topic.record.cells == (ONE, TWO)


@pytest.fixture
async def empty() -> AsyncIterator[Bench]:
    async with memory_cells(Bench()) as made:
        yield made


@pytest.fixture
async def bench(empty: Bench) -> Bench:
    """With rows a and b in the first tablet, c and d in the second, a batch each."""
    await create(empty)
    for number, value in enumerate((b"a", b"b", b"c", b"d")):
        await empty.partition(number // 2).write(*batch(value))
    return empty


ROWS = [b"a", b"b", b"c", b"d"]


async def test_rows_and_their_facts_follow_those_of_the_first_tablet(bench: Bench) -> None:
    facts = [fact for index in (0, 1) for fact in await bench.partition(index).facts.read(0, 2)]
    weights = [facts[0].cumulative_weight, facts[1].cumulative_weight - facts[0].cumulative_weight]
    await bench.glue()
    for _ in "12":
        assert bench.topic.record.tablets == (bench.made,)
        assert await bench.values() == ROWS
        glued = list(await bench.partition().facts.read(0, 4))
        assert [fact.timestamp for fact in glued] == [fact.timestamp for fact in facts]
        assert [fact.cumulative_weight for fact in glued] == [weights[0] * number for number in (1, 2, 3, 4)]
        await bench.reopen()
    assert weights[0] == weights[1]


async def test_glued_rows_are_closed_as_a_whole(bench: Bench) -> None:
    await bench.glue()
    assert bench.partition().state.head.blobs == []
    assert bench.partition().end_offset == 4


async def test_many_rows_are_glued_some_at_a_time_and_each_once(empty: Bench) -> None:
    await create(empty)
    values = [b"%07d" % number * 3_000 for number in range(150)]
    await empty.partition().write(*batch(b"first"))
    for value in values:
        await empty.partition(1).write(*batch(value))
    await empty.glue()
    assert await empty.values() == [b"first", *values]


@pytest.mark.parametrize("stored", [False, True])
async def test_when_the_scheme_is_lost_at_its_commit_both_states_are_kept(bench: Bench, *, stored: bool) -> None:
    bench.faults(SYSTEM_CELL).lose_next(after=1, stored=stored)
    with pytest.raises(ShardLost):
        await bench.glue()
    assert await bench.holds(ONE, bench.made)
    await bench.reopen()
    assert [await bench.values(index) for index in range(len(bench.topic.partitions))] == (
        [ROWS] if stored else [ROWS[:2], ROWS[2:]]
    )
    assert await bench.holds(ONE, bench.made) is stored


@pytest.mark.parametrize("after", [0, 1])
async def test_when_the_scheme_refuses_all_is_as_it_was(bench: Bench, after: int) -> None:
    before = set(bench.host(ONE).cell.tablets())
    bench.faults(SYSTEM_CELL).refuse_next(after=after)
    with pytest.raises(CommitRefused):
        await bench.glue()
    await bench.host(ONE).reclaimed()
    assert set(bench.host(ONE).cell.tablets()) == before
    assert [await bench.values(index) for index in (0, 1)] == [ROWS[:2], ROWS[2:]]
    await bench.glue()
    assert await bench.values() == ROWS


async def test_an_unreadable_tablet_is_not_glued_and_no_copy_is_left(bench: Bench) -> None:
    before = set(bench.host(ONE).cell.tablets())
    bench.partition(1).refuse(StoredUnreadable("a row", "it is damaged"))
    with pytest.raises(BundleRefused, match=r"rows of t cannot be copied.*a row cannot be read"):
        await bench.glue()
    await bench.host(ONE).reclaimed()
    assert set(bench.host(ONE).cell.tablets()) == before
    assert len(bench.topic.partitions) == 2


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_tablets_that_go_meanwhile_refuse_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    scheme, topics = bench.opened.scheme, bench.opened.topics
    reserve, before = scheme.reserve_tablets, set(bench.host(ONE).cell.tablets())

    async def after_another_change(count: int) -> tuple[TabletId, ...]:
        if is_deleted:
            await topics.delete("t")
        else:
            await topics.reshard("t", lambda record: bench.without_the_second(record))
        return await reserve(count)

    monkeypatch.setattr(scheme, "reserve_tablets", after_another_change)
    with pytest.raises(TopicUnknown if is_deleted else BundleRefused):
        await bench.glue()
    await bench.host(ONE).reclaimed()
    assert set(bench.host(ONE).cell.tablets()) <= before
    if not is_deleted:
        assert await bench.values() == ROWS[:2]


async def test_a_blob_that_goes_while_its_tablet_is_copied_is_copied_in_its_later_form(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow, calls = TabletCopy.follow, list[TabletCopy]()

    async def at_the_second_call(copy: TabletCopy) -> bool:
        calls.append(copy)
        return len(calls) > 1 and await follow(copy)

    monkeypatch.setattr(TabletCopy, "follow", at_the_second_call)
    await bench.glue()
    assert await bench.values() == ROWS


async def test_a_cell_that_is_lost_has_no_tablets_to_glue(bench: Bench) -> None:
    bench.engine_of(ONE).crash()
    with pytest.raises(BundleRefused, match="cell 1 is not open"):
        await bench.glue()


async def test_sessions_are_glued_some_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablet_gluing, "_SESSIONS_AT_ONCE", 2)
    for number in range(5):
        share = Share(bench.partition(1), [batch(b"s")])
        await write_together([share], Fence(f"s{number}", 7), lambda: START_MS)
    await bench.glue()
    for _ in "12":
        found = {name: (each.sequence, each.base_offset) for name, each in bench.partition().state.sessions}
        assert found == {f"s{number}": (7, 4 + number) for number in range(5)}
        await bench.reopen()


LIMITS = (
    {"pq.max.count.in.partition": "1"}, {"pq.max.size.in.partition": "1"}, {"pq.inactive.partitions": "0,1"},
    {"message.timestamp.before.max.ms": "1000"}, {"message.timestamp.type": "LogAppendTime"},
)  # fmt: skip


@pytest.mark.parametrize("config", LIMITS, ids=lambda config: next(iter(config)))
async def test_rows_that_were_taken_once_are_glued_as_they_are_whatever_is_set_now(
    empty: Bench, config: Mapping[str, str]
) -> None:
    await create(empty)
    for index in (0, 1):
        await empty.partition(index).write(*batch(b"%d" % index, timestamps=[OLD_MS + index]))
    await empty.opened.topics.reconfigure("t", lambda known: {**known, **config})
    await empty.glue()
    assert (await empty.values(), await empty.timestamps()) == ([b"0", b"1"], [OLD_MS, OLD_MS + 1])


async def test_rows_over_the_limit_of_weight_are_glued(empty: Bench) -> None:
    table = table_that_keeps_facts(2)
    mounted = MountedAttributes.collect([{"max_ordered_tablet_data_weight": 16}] * 2)
    await create(empty, table=replace(table, mounted=mounted))
    for index in (0, 1):
        await write(empty.partition(index), batch(b"%d" % index * 20))
    await empty.glue()
    assert await empty.values() == [b"0" * 20, b"1" * 20]


async def test_rows_that_a_cleaner_took_out_keep_their_numbers(empty: Bench) -> None:
    await create(empty)
    server = empty.partition(1)
    for number in range(12):
        await server.write(*batch(b"%d" % number))
    await server.flush()
    facts = list(await server.facts.read(0, 12))
    assert await server.replace_bodies([await thinned(server, 0, 1, lambda row: row in (3, 4, 9))])
    await empty.partition(0).write(*batch(b"first"))
    await empty.glue()
    glued = empty.partition()
    assert glued.end_offset == 13
    read = glued.read(query(glued, 0, KIB * KIB))
    found = values_of(read if isinstance(read, Batches) else await read, 0)
    assert found == [(0, b"first"), (4, b"3"), (5, b"4"), (10, b"9")]
    assert [fact.timestamp for fact in await glued.facts.read(1, 13)] == [fact.timestamp for fact in facts]

"""The scheme: topics by name and id through creation, growth, deletion, restarts and refusals."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from pqbroker.storage.bundles.placement import NoHealthyCell
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL, CellId, new_uuid, uuid_text
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme import PRODUCER_IDS_PER_BLOCK, Scheme, SchemeError
from pqbroker.storage.tablets.scheme_layout import FIRST_TABLET_ID
from pqbroker.storage.tablets.scheme_state import CELLS_FORMAT, FIRST_FORMAT, Resharded, TableRecord, TopicRecord
from pqbroker.storage.tablets.scheme_topics import (
    PARTITIONS_MAX,
    PARTITIONS_PER_TABLET_MAX,
    PartitionsNotGrown,
    PartitionsRefused,
    TopicChanges,
    TopicExists,
    TopicUnknown,
    WantedTopic,
    tablet_count,
)
from pqbroker.storage.unreadable import StoredUnreadable

NOW_MS = 1_700_000_000_000
NONE_OF_TWO = MountedAttributes.collect([{}, {}])


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(1 << 26)


async def _open(engine: MemoryEngine) -> Scheme:
    return await Scheme.open(TabletHost(await Cell.open(engine)))


def _changes(scheme: Scheme) -> TopicChanges:
    return TopicChanges(scheme, lambda: NOW_MS)


async def test_a_new_scheme_has_a_cluster_id_that_stays(engine: MemoryEngine) -> None:
    first = await _open(engine)
    assert len(first.cluster_id) == 22
    assert (await _open(engine)).cluster_id == first.cluster_id


async def test_a_topic_is_there_after_each_step_and_a_restart(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    created = await _changes(scheme).create("t", 5, {"retention.ms": "1"}, 4)
    assert created.tablets == (FIRST_TABLET_ID, FIRST_TABLET_ID + 1)
    assert (created.partitions, created.created_ms) == (5, NOW_MS)
    for seen in (scheme, scheme := await _open(engine)):
        assert seen.topics == {"t": created}
    grown = await _changes(scheme).grow("t", 9)
    assert grown.tablets == (*created.tablets, FIRST_TABLET_ID + 2)
    configured = await _changes(scheme).change("t", lambda topic: replace(topic, config={"a": "b"}))
    for seen in (scheme, scheme := await _open(engine)):
        assert seen.topics == {"t": configured}
        assert (configured.partitions, configured.config, configured.topic_id) == (9, {"a": "b"}, created.topic_id)
    assert await _changes(scheme).delete("t") == configured
    for seen in (scheme, scheme := await _open(engine)):
        assert seen.topics == {}
        assert [stone.tablets for stone in seen.tombstones.values()] == [configured.tablets]
    await scheme.forget_tombstones(created.topic_id)
    for seen in (scheme, scheme := await _open(engine)):
        assert seen.tombstones == {}


async def test_topics_made_together_are_one_change_and_their_tablets_are_placed_together(engine: MemoryEngine) -> None:
    placed: list[tuple[str, int]] = []

    def choose(bundle: str, count: int) -> Sequence[CellId]:
        placed.append((bundle, count))
        if bundle == "closed":
            raise NoHealthyCell(bundle)
        return [CellId(number % 2 + 1) if bundle == "b" else SYSTEM_CELL for number in range(count)]

    host = TabletHost(await Cell.open(engine))
    scheme = await Scheme.open(host)
    table = TableRecord((), {}, MountedAttributes.collect([{}]), ("mounted",), (0,))
    commits = host.cell.stats().commits
    found = await TopicChanges(scheme, lambda: NOW_MS, choose).create_each([
        WantedTopic("t", 1, {}, 1, table), WantedTopic("u", 3, {"pq.bundle": "b"}, 1),
        WantedTopic("v", 1, {"pq.bundle": "closed"}, 1), WantedTopic("w", 0, {}, 1),
        WantedTopic("x", 2, {"pq.bundle": "b"}, 1), WantedTopic("y", 1, {}, 1, replace(table, is_static=True)),
    ])  # fmt: skip
    assert host.cell.stats().commits == commits + 1
    assert placed == [("default", 2), ("b", 5), ("closed", 1)]
    refused = {number: type(each) for number, each in enumerate(found) if isinstance(each, Exception)}
    assert refused == {2: NoHealthyCell, 3: PartitionsRefused}
    made = {each.name: each for each in found if isinstance(each, TopicRecord)}
    assert [made[name].cells for name in "tuxy"] == [(), (1, 2, 1), (2, 1), ()]
    tablets = [tablet for topic in made.values() for tablet in topic.tablets]
    assert sorted(tablets) == list(range(FIRST_TABLET_ID, FIRST_TABLET_ID + 7))
    with pytest.raises(TopicExists):
        await _changes(scheme).create("t", 1, {}, 1)
    assert (await _open(engine)).topics == made


async def test_versions_before_tables_read_a_scheme_until_its_first_table(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = await _open(engine)
    topic = await _changes(scheme).create("t", 1, {}, 1)
    with monkeypatch.context() as before:
        before.setattr("pqbroker.storage.tablets.scheme_state.SCHEME_FORMAT", FIRST_FORMAT)
        await _open(engine)
    table = TableRecord(({"name": "a", "type": "any"},), {"x": 1}, NONE_OF_TWO, ("mounted", "frozen"), (0, 7))
    scheme = await _open(engine)
    made = await _changes(scheme).create("u", 2, {}, 1, table)
    with monkeypatch.context() as before:
        before.setattr("pqbroker.storage.tablets.scheme_state.SCHEME_FORMAT", FIRST_FORMAT)
        with pytest.raises(StoredUnreadable, match="newer version"):
            await _open(engine)
    scheme = await _open(engine)
    assert scheme.topics == {"t": topic, "u": made}
    grown = await _changes(scheme).grow("u", 3)
    mounted = MountedAttributes(({}, {"x": 1}), (0, 0, 1))
    states = ("mounted", "frozen", "mounted")
    assert grown.table == replace(table, mounted=mounted, states=states, first_rows=(0, 7, 0))
    assert (await _open(engine)).topics["u"] == grown


async def test_versions_before_attributes_by_tablet_read_a_scheme_while_tablets_agree(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = await _open(engine)
    mounted = MountedAttributes.collect([{"x": 1}] * 3)
    made = await _changes(scheme).create("u", 3, {}, 1, TableRecord((), {"x": 2}, mounted, ("mounted",) * 3, (0,) * 3))
    monkeypatch.setattr("pqbroker.storage.tablets.scheme_state.SCHEME_FORMAT", CELLS_FORMAT)
    scheme = await _open(engine)
    assert scheme.topics == {"u": made}
    assert made.table is not None
    taken = replace(made.table, mounted=mounted.taken([1], {"x": 2}))
    await _changes(scheme).change("u", lambda topic: topic.with_table(taken))
    with pytest.raises(StoredUnreadable, match="newer version"):
        await _open(engine)
    monkeypatch.undo()
    scheme = await _open(engine)
    assert scheme.topics["u"].table == taken
    assert list(taken.mounted) == [{"x": 1}, {"x": 2}, {"x": 1}]
    await _changes(scheme).create("in another cell", 1, {}, 1)
    await _changes(scheme).change("in another cell", lambda topic: replace(topic, cells=(CellId(1),)))
    monkeypatch.setattr("pqbroker.storage.tablets.scheme_state.SCHEME_FORMAT", CELLS_FORMAT)
    with pytest.raises(StoredUnreadable, match="newer version"):
        await _open(engine)


@pytest.mark.parametrize("numbers", [[0], [0, 2], [0, 0], [0, -1], [0, 1, 1], [0, "1"]])
async def test_numbers_of_attributes_that_fit_no_tablets_are_refused(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch, numbers: list[object]
) -> None:
    scheme = await _open(engine)
    mounted = MountedAttributes(({}, {"x": 1}), tuple(numbers))  # type: ignore[arg-type]
    with suppress(StoredUnreadable, ValueError):
        await _changes(scheme).create("u", 2, {}, 1, TableRecord((), {}, mounted, ("mounted",) * 2, (0, 0)))
    with pytest.raises(StoredUnreadable, match="attributes of 2 tablets"):
        await _open(engine)


def test_attributes_of_tablets_are_kept_once_however_many_tablets_have_them() -> None:
    first, second = {"x": 1}, {"x": 2}
    mounted = MountedAttributes.collect([first, second, {"x": 1}, second])
    assert mounted == MountedAttributes((first, second), (0, 1, 0, 1))
    assert mounted.taken(range(1, 3), {"x": 3}) == MountedAttributes((first, {"x": 3}, second), (0, 1, 1, 2))
    assert mounted.taken([0, 2], {"x": 2}) == MountedAttributes((second,), (0, 0, 0, 0))
    assert mounted.changed(lambda each: {"x": each["x"] // 2}) == MountedAttributes(({"x": 0}, first), (0, 1, 0, 1))
    assert mounted.changed(lambda _: {}) == MountedAttributes(({},), (0, 0, 0, 0))


async def test_growth_fills_the_last_tablet_before_it_adds_one(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    before = await _changes(scheme).create("t", 5, {}, 4)
    full = await _changes(scheme).grow("t", 8)
    assert full.tablets == before.tablets
    grown = await _changes(scheme).grow("t", 9)
    assert [grown.tablet_of(partition) for partition in range(8)] == [full.tablet_of(number) for number in range(8)]
    assert grown.tablet_of(8) not in full.tablets


async def test_tablet_ids_and_topic_ids_are_never_used_again(engine: MemoryEngine) -> None:
    tablets: set[int] = set()
    ids: set[bytes] = set()
    for _ in range(4):
        scheme = await _open(engine)
        for _ in range(3):
            topic = await _changes(scheme).create("t", 3, {}, 1)
            assert not tablets & set(topic.tablets)
            tablets.update(topic.tablets)
            ids.add(topic.topic_id)
            await _changes(scheme).delete("t")
            await scheme.forget_tombstones(topic.topic_id)
    assert len(ids) == 12


async def test_another_topic_id_leaves_nothing_of_the_one_before(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    table = TableRecord((), {}, MountedAttributes.collect([{}]), ("unmounted",), (0,))
    created = await _changes(scheme).create("t", 1, {}, 1, table)
    after = replace(created, topic_id=new_uuid())
    changed, tombstone = await _changes(scheme).reshard("t", lambda _: Resharded(after, [0]))
    assert (changed, tombstone) == (after, None)
    for _ in range(600):  # a snapshot has rows, no changes
        await scheme.producer_id_block()
    scheme = await _open(engine)
    assert scheme.topics == {"t": after}
    await _changes(scheme).delete("t")
    for _ in range(600):
        await scheme.producer_id_block()
    assert (await _open(engine)).topics == {}


async def test_ids_go_on_behind_a_snapshot_and_its_garbage(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    cluster_id = scheme.cluster_id
    topic = await _changes(scheme).create("t", 1, {}, 1)
    for _ in range(600):
        await scheme.producer_id_block()
    await scheme.stop()
    scheme = await _open(engine)
    assert (await scheme.producer_id_block()).start == 600 * PRODUCER_IDS_PER_BLOCK
    assert (scheme.cluster_id, scheme.topics) == (cluster_id, {"t": topic})


async def test_a_name_is_taken_once_even_by_two_at_the_same_time(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    outcomes = await asyncio.gather(
        *(_changes(scheme).create("t", 1, {}, 1) for _ in range(3)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes[1:]] == [TopicExists, TopicExists]
    assert scheme.topics == {"t": outcomes[0]}


async def test_what_is_not_there_cannot_be_changed(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    changes = _changes(scheme)
    for change in (changes.grow("t", 2), changes.change("t", lambda topic: topic), changes.delete("t")):
        with pytest.raises(TopicUnknown):
            await change


@pytest.mark.parametrize("count", [1, 3])
async def test_partitions_never_shrink(engine: MemoryEngine, count: int) -> None:
    scheme = await _open(engine)
    topic = await _changes(scheme).create("t", 3, {}, 1)
    with pytest.raises(PartitionsNotGrown):
        await _changes(scheme).grow("t", count)
    assert scheme.topics == {"t": topic}


@pytest.mark.parametrize(
    ("partitions", "per_tablet"),
    [(0, 1), (PARTITIONS_MAX + 1, 4), (1, 0), (1, PARTITIONS_PER_TABLET_MAX + 1), (10_001, 1)],
)
async def test_limits_of_partitions_and_tablets(engine: MemoryEngine, partitions: int, per_tablet: int) -> None:
    scheme = await _open(engine)
    with pytest.raises(PartitionsRefused):
        await _changes(scheme).create("t", partitions, {}, per_tablet)
    assert scheme.topics == {}
    assert tablet_count(PARTITIONS_MAX, 2) == 10_000


async def test_a_refused_commit_changes_nothing_and_can_be_tried_again(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await _changes(scheme).create("t", 1, {}, 1)
    assert scheme.topics == {}
    topic = await _changes(scheme).create("t", 1, {}, 1)
    assert scheme.topics == {"t": topic}


@pytest.mark.parametrize("commits", range(6))
async def test_a_crash_at_any_step_leaves_a_state_between_two_steps(engine: MemoryEngine, commits: int) -> None:
    scheme = await _open(engine)
    engine.faults.lose_next(after=commits)
    seen = (dict(scheme.topics), dict(scheme.tombstones))
    done = 0
    with suppress(ShardLost):
        for change in (
            lambda: _changes(scheme).create("t", 1, {}, 1),
            lambda: _changes(scheme).grow("t", 2),
            lambda: _changes(scheme).change("t", lambda topic: replace(topic, config={"a": "b"})),
            lambda: _changes(scheme).delete("t"),
            lambda: scheme.forget_tombstones(next(iter(scheme.tombstones))),
            scheme.producer_id_block,
            scheme.producer_id_block,
        ):
            await change()
            done += 1
            seen = (dict(scheme.topics), dict(scheme.tombstones))
    assert done == commits
    again = await _open(engine)
    assert (dict(again.topics), dict(again.tombstones)) == seen


async def test_producer_ids_are_given_out_once(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    first, second = await asyncio.gather(scheme.producer_id_block(), scheme.producer_id_block())
    third = await (await _open(engine)).producer_id_block()
    assert (first.start, second.start, third.start) == (0, first.stop, second.stop)
    assert len(first) == PRODUCER_IDS_PER_BLOCK


def test_ids_are_kafkas() -> None:
    texts = {uuid_text(new_uuid()) for _ in range(2000)}
    assert len(texts) == 2000
    assert all(len(text) == 22 and text[0] != "-" for text in texts)


def test_every_refusal_is_a_scheme_error() -> None:
    for kind in (TopicExists, TopicUnknown, PartitionsNotGrown, PartitionsRefused):
        assert issubclass(kind, SchemeError)


async def test_what_nodes_are_set_to_is_there_after_each_step_and_a_restart(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    assert scheme.settings == {}
    await scheme.configure_node("1", {"a": "x", "b": "y"})
    await scheme.configure_node("", {"a": "z"})
    for seen in (scheme, scheme := await _open(engine)):
        assert seen.settings == {"1": {"a": "x", "b": "y"}, "": {"a": "z"}}
    await scheme.configure_node("1", {"b": "w"})
    await scheme.configure_node("", {})
    for seen in (scheme, await _open(engine)):
        assert seen.settings == {"1": {"b": "w"}, "": {}}


async def test_a_refused_change_of_a_node_leaves_it_as_it_was(engine: MemoryEngine) -> None:
    scheme = await _open(engine)
    engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await scheme.configure_node("1", {"a": "x"})
    assert scheme.settings == (await _open(engine)).settings == {}


async def test_a_scheme_from_before_nodes_could_be_set_takes_it(
    engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        for module in ("scheme", "scheme_layout"):
            before.setattr(f"pqbroker.storage.tablets.{module}.lay_out_settings", lambda _: None)
        await _changes(await _open(engine)).create("t", 1, {}, 4)
    scheme = await _open(engine)
    await scheme.configure_node("1", {"a": "x"})
    assert (scheme.settings, list(scheme.topics)) == ({"1": {"a": "x"}}, ["t"])

"""Mirrors of scheme and hive: equal to the original after any changes and losses; gaps and lies are refused."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.storage.bundles.bundle import new_bundle
from pqbroker.storage.bundles.hive import CellState, Hive, HiveState
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import CellId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.mirror import Mirror, MirrorRefused
from pqbroker.storage.tablets.numbered_changes import (
    CHANGES_KEPT_BYTES,
    CHANGES_KEPT_MAX,
    ChangeLog,
    NumberedChange,
    SnapshotPortion,
)
from pqbroker.storage.tablets.row_sets import RowSet
from pqbroker.storage.tablets.scheme import SCHEME_TABLET_ID, Scheme, SchemeError
from pqbroker.storage.tablets.scheme_state import SchemeState
from pqbroker.storage.tablets.scheme_topics import TopicChanges
from tests.support.depth import examples

SMALL_BYTES = 100
"""So that a snapshot has many portions."""
names = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.sampled_from(("create", "grow", "configure", "move", "delete")), names, st.integers(1, 9)),
    st.tuples(st.sampled_from(("bundle", "cell", "ready", "forget")), names, st.integers(1, 3)),
    st.tuples(st.sampled_from(("ids", "node", "named", "refuse", "restart", "crash")), names, st.integers(0, 9)),
    st.tuples(st.sampled_from(("follow", "follow", "snapshot")), names, st.integers(0, 9)),
)


class Originals:
    """Scheme and hive in the system cell of an engine in memory; `is_followed`: from the start on."""

    def __init__(self, *, is_followed: bool = False) -> None:
        self.is_followed = is_followed
        self.engine = MemoryEngine(1 << 26)

    async def open(self) -> None:
        self.engine.faults.clear()
        self.host = TabletHost(await Cell.open(self.engine))
        self.hive = await Hive.open(self.host)
        self.scheme = await Scheme.open(self.host)
        for changes in (self.scheme.changes, self.hive.changes) if self.is_followed else ():
            changes.follow(lambda _: None)

    async def change(self, step: str, name: str, number: int) -> None:
        topics = TopicChanges(self.scheme, lambda: 1)
        cell = CellId(number)
        changes: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "create": lambda: topics.create(name, number, {"x": name}, 2),
            "grow": lambda: topics.grow(name, number),
            "configure": lambda: topics.change(name, lambda topic: replace(topic, config={"y": str(number)})),
            "move": lambda: topics.change(name, lambda topic: topic.moved(topic.tablets[0], cell)),
            "delete": lambda: topics.delete(name),
            "bundle": lambda: self.hive.create_bundle(new_bundle(name, {}, "")),
            "cell": lambda: self.hive.add_cell("default", 9),
            "ready": lambda: self.hive.set_state(cell, CellState.READY),
            "forget": lambda: self.hive.forget_cell(cell),
            "ids": self.scheme.producer_id_block,
            "node": lambda: self.scheme.configure_node(name, {"z": str(number)}),
            "named": lambda: self.scheme.change_named_settings(
                "groups", name, lambda _: {"z": str(number)} if number else {}
            ),
            "restart": lambda: self.host.restart(SCHEME_TABLET_ID),
        }
        if step == "refuse":
            self.engine.faults.refuse_next()
        elif step == "crash":
            self.engine.crash()
            await self.open()
        else:
            await changes[step]()


def rows(row_sets: Any) -> dict[str, Any]:
    found: dict[str, RowSet] = dict(row_sets)
    return {name: (one.schema, {key: dict(row) for key, row in one}) for name, one in found.items()}


def is_equal(mirror: Mirror[Any], changes: ChangeLog) -> bool:
    """Compare a mirror and its state with a new mirror of a snapshot."""
    whole = type(mirror)(type(mirror.state))
    load(whole, changes)
    slots = mirror.state.__slots__
    return (
        mirror.number == changes.number == whole.number
        and rows(mirror.row_sets) == rows(whole.row_sets)
        and all(getattr(mirror.state, name) == getattr(whole.state, name) for name in slots)
    )


def load(mirror: Mirror[Any], changes: ChangeLog, bytes_max: int = SMALL_BYTES) -> None:
    portions = [SnapshotPortion.decode(portion.encode()) for portion in changes.snapshot().portions(bytes_max)]
    assert [mirror.take(portion) for portion in portions] == [False] * (len(portions) - 1) + [True]


def catch_up(mirror: Mirror[Any], changes: ChangeLog) -> str:
    """Bring a mirror up to date as a node does; return how."""
    found = None if mirror.number is None else changes.since(mirror.number)
    if found is None:
        load(mirror, changes)
        return "snapshot"
    for change in found:
        assert mirror.apply(NumberedChange.decode(change.encode()))
        assert not mirror.apply(change), "a change that came before changes nothing"
    return "changes"


async def _play(story: Sequence[tuple[str, str, int]]) -> None:
    originals = Originals(is_followed=True)
    await originals.open()
    schemes, hives = Mirror(SchemeState), Mirror(HiveState)
    last = (0, 0)
    for step, name, number in story:
        if step == "follow":
            catch_up(schemes, originals.scheme.changes)
            catch_up(hives, originals.hive.changes)
            assert is_equal(schemes, originals.scheme.changes)
            assert is_equal(hives, originals.hive.changes)
            continue
        if step == "snapshot":
            load(schemes, originals.scheme.changes)
            continue
        with suppress(CommitRefused, ShardLost, SchemeError, ValueError):
            await originals.change(step, name, number)
        numbers = (originals.scheme.changes.number, originals.hive.changes.number)
        assert all(now >= before for now, before in zip(numbers, last, strict=True))
        last = numbers
    catch_up(schemes, originals.scheme.changes)
    catch_up(hives, originals.hive.changes)
    assert is_equal(schemes, originals.scheme.changes)
    assert is_equal(hives, originals.hive.changes)
    assert schemes.state.topics == dict(originals.scheme.topics)
    assert schemes.state.facts["cluster_id"] == originals.scheme.cluster_id
    assert hives.state.cells == dict(originals.hive.cells)
    assert hives.state.bundles == dict(originals.hive.bundles)


@settings(max_examples=examples(200))
@given(st.lists(steps, min_size=1, max_size=30))
def test_a_mirror_equals_the_original_after_any_changes(story: list[tuple[str, str, int]]) -> None:
    asyncio.run(_play(story))


async def opened() -> Originals:
    originals = Originals()
    await originals.open()
    return originals


async def create(originals: Originals, *names: str) -> None:
    for name in names:
        await originals.change("create", name, 1)


async def test_a_number_survives_a_crash_and_rises_with_the_next_commit() -> None:
    originals = await opened()
    await create(originals, "a")
    number = originals.scheme.changes.number
    await originals.change("crash", "", 0)
    assert originals.scheme.changes.number == number
    await create(originals, "b")
    assert originals.scheme.changes.number > number


async def test_a_refused_change_has_no_number() -> None:
    originals = await opened()
    number = originals.scheme.changes.number
    originals.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await create(originals, "a")
    assert originals.scheme.changes.number == number


async def test_a_gap_is_refused_and_changes_nothing() -> None:
    originals = await opened()
    told: list[NumberedChange] = []
    leave = originals.scheme.changes.follow(told.append)
    mirror = Mirror(SchemeState)
    with pytest.raises(MirrorRefused, match="snapshot first"):
        mirror.apply(NumberedChange(0, 1, ()))
    load(mirror, originals.scheme.changes)
    await create(originals, "a", "b")
    leave()
    await create(originals, "c")
    assert len(told) == 2
    with pytest.raises(MirrorRefused, match="but the mirror has"):
        mirror.apply(told[1])
    assert mirror.state.topics == {}
    assert mirror.apply(told[0])
    assert list(mirror.state.topics) == ["a"]
    assert catch_up(mirror, originals.scheme.changes) == "changes"
    assert list(mirror.state.topics) == ["a", "b", "c"]


async def test_changes_are_kept_from_the_first_follower_on() -> None:
    originals = await opened()
    number = originals.scheme.changes.number
    await create(originals, "a")
    assert originals.scheme.changes.since(number) is None
    originals.scheme.changes.follow(lambda _: None)
    number = originals.scheme.changes.number
    await create(originals, "b")
    kept = originals.scheme.changes.since(number)
    assert kept is not None
    assert len(kept) == 1


def test_changes_that_are_too_old_are_not_kept() -> None:
    changes = ChangeLog()
    changes.follow(lambda _: None)
    for number in range(1, CHANGES_KEPT_MAX + 3):
        changes.add(number, (), 1)
    assert (changes.since(1), changes.since(0)) == (None, None)
    assert [change.number for change in changes.since(CHANGES_KEPT_MAX) or ()] == [
        CHANGES_KEPT_MAX + 1, CHANGES_KEPT_MAX + 2,
    ]  # fmt: skip
    assert len(changes.since(2) or ()) == CHANGES_KEPT_MAX
    changes.add(5000, (), CHANGES_KEPT_BYTES)
    assert changes.since(CHANGES_KEPT_MAX + 1) is None
    changes.add(5001, (), CHANGES_KEPT_BYTES + 1)
    assert (changes.since(5000), changes.since(5001), changes.since(77)) == (None, (), None)


async def test_a_snapshot_stays_as_it_was_while_changes_go_on() -> None:
    originals = await opened()
    await create(originals, "a", "b")
    portions = originals.scheme.changes.snapshot().portions(SMALL_BYTES)
    first = next(portions)
    await originals.change("delete", "a", 0)
    await create(originals, "c")
    mirror = Mirror(SchemeState)
    mirror.take(first)
    assert (mirror.state.topics, mirror.number) == ({}, None), "readers see whole commits only"
    for portion in portions:
        mirror.take(portion)
    assert sorted(mirror.state.topics) == ["a", "b"]


async def test_a_snapshot_from_an_owner_of_the_past_is_refused() -> None:
    originals = await opened()
    old = list(originals.scheme.changes.snapshot().portions())
    await create(originals, "a")
    mirror = Mirror(SchemeState)
    load(mirror, originals.scheme.changes)
    with pytest.raises(MirrorRefused, match="it is old"):
        mirror.take(old[0])
    assert list(mirror.state.topics) == ["a"]


async def test_a_portion_that_is_missing_is_noticed_and_the_snapshot_begins_again() -> None:
    originals = await opened()
    await create(originals, "a", "b")
    portions = list(originals.scheme.changes.snapshot().portions(SMALL_BYTES))
    mirror = Mirror(SchemeState)
    for *taken, wrong in ((1,), (0, 2), (0, 1, 1)):
        for index in taken:
            mirror.take(portions[index])
        with pytest.raises(MirrorRefused, match="is missing"):
            mirror.take(portions[wrong])
    assert mirror.number is None
    load(mirror, originals.scheme.changes)
    assert is_equal(mirror, originals.scheme.changes)


async def test_the_age_counts_from_the_last_question_to_which_nothing_was_missing() -> None:
    originals = await opened()
    mirror = Mirror(SchemeState)
    assert not mirror.confirm(originals.scheme.changes.number, 5)
    assert mirror.age_ms(10) is None
    load(mirror, originals.scheme.changes)
    assert mirror.age_ms(10) is None
    assert mirror.confirm(originals.scheme.changes.number, 10)
    await create(originals, "a")
    assert not mirror.confirm(originals.scheme.changes.number, 20)
    assert mirror.age_ms(25) == 15
    load(mirror, originals.scheme.changes)
    assert mirror.confirm(originals.scheme.changes.number, 30)
    assert mirror.confirm(originals.scheme.changes.number, 20), "answers may overtake one another"
    assert mirror.age_ms(31) == 1


@pytest.mark.parametrize(
    "operations",
    [
        [[4, "topics", [b"x"], {}]],
        [[4, "nowhere", ["x"], {}]],
        [[5, "facts", ["format"]]],
        [[4, "facts", ["format"], {"value": 1 << 40}]],
        [[4, "facts", ["format"], None]],
        [[4, "facts", 7, {"value": 1}]],
        [[99, "facts"]],
        [[]],
        [[4, "topics", [b"x"], {"name": [], "tablets": []}]],
    ],
)
async def test_a_change_that_cannot_be_made_leaves_an_empty_mirror(operations: list[list[Any]]) -> None:
    originals = await opened()
    mirror = Mirror(SchemeState)
    load(mirror, originals.scheme.changes)
    assert mirror.number is not None
    mirror.confirm(mirror.number, 1)
    change = NumberedChange(mirror.number, mirror.number + 1, [[4, "facts", ["next_producer_id"], {"value": 7}]])
    assert mirror.apply(change)
    with pytest.raises(MirrorRefused, match="is unreadable"):
        mirror.apply(NumberedChange(change.number, change.number + 1, operations))
    assert mirror.age_ms(2) is None
    assert not mirror.row_sets
    assert not mirror.state.facts
    with pytest.raises(MirrorRefused):
        mirror.take(SnapshotPortion(1, 0, len(operations), operations))
    load(mirror, originals.scheme.changes)


def test_a_snapshot_of_a_newer_version_is_refused() -> None:
    made = Originals()

    async def newer() -> list[SnapshotPortion]:
        await made.open()
        await made.scheme.change(lambda changes: changes.put("facts", ("format",), {"value": 99}))
        return list(made.scheme.changes.snapshot().portions())

    mirror = Mirror(SchemeState)
    *some, last = asyncio.run(newer())
    for portion in some:
        mirror.take(portion)
    with pytest.raises(MirrorRefused, match="a newer version wrote it"):
        mirror.take(last)
    assert mirror.number is None


def test_bytes_of_other_forms_are_refused() -> None:
    whole = NumberedChange(1, 2, [[3, "a"]]).encode()
    assert NumberedChange.decode(whole) == NumberedChange(1, 2, [[3, "a"]])
    portion = SnapshotPortion(1, 0, 2, [[3, "a"]]).encode()
    assert not SnapshotPortion.decode(portion).is_last
    for decode, body in ((NumberedChange.decode, whole), (SnapshotPortion.decode, portion)):
        for bad in (b"", b"\x02" + body[1:], body[:-1], body + b"\0", body[:1] + b"\0"):
            with pytest.raises(ValueError, match=r"."):
                decode(bad)
    for change in (NumberedChange(2, 2, []), NumberedChange(-1, 2, []), NumberedChange(1, 1 << 64, [])):
        with pytest.raises(ValueError, match=r"."):
            NumberedChange.decode(change.encode())
    for lie in (SnapshotPortion(1, 2, 2, [[3]]), SnapshotPortion(1, 0, 2, []), SnapshotPortion(1, -1, 2, [[3]])):
        with pytest.raises(ValueError, match=r"."):
            SnapshotPortion.decode(lie.encode())

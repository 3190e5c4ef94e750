"""Copies of another node's scheme and hive: equal to the originals after snapshots and changes; lies break the link."""

import asyncio
from typing import Any

import pytest

from pqbroker.broker.node.mirrored_rows import HIVE, SCHEME, MirroredRows
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.storage.bundles.hive import CellState, Hive
from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.ids import CellId
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets import mirror_copy
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.numbered_changes import ChangeLog
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_topics import TopicChanges

PATIENCE_S = 30.0


class Known:
    """Scheme and hive of one node."""

    @classmethod
    async def open(cls) -> "Known":
        known = cls()
        host = TabletHost(await Cell.open(MemoryEngine(1 << 26)))
        known.hive, known.scheme = await Hive.open(host), await Scheme.open(host)
        known.topics = TopicChanges(known.scheme, lambda: 7)
        return known

    hive: Hive
    scheme: Scheme
    topics: TopicChanges

    @property
    def logs(self) -> dict[str, ChangeLog]:
        return {SCHEME: self.scheme.changes, HIVE: self.hive.changes}


async def _never(cell: CellId) -> None:
    raise PeerRefused("no link")


def _send_snapshots(originals: Known, rows: MirroredRows) -> None:
    for name, log in originals.logs.items():
        for portion in log.snapshot().portions(200):
            rows.take(name, memoryview(portion.encode()), is_portion=True)


async def _until_equal(originals: Known, copies: Known, copied: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while _facts(originals) != _facts(copies):
            copied.clear()
            await copied.wait()


def _facts(known: Known) -> Any:
    scheme = known.scheme
    return (
        scheme.cluster_id, dict(scheme.topics), dict(scheme.tombstones), dict(scheme.settings),
        scheme.timestamps_reserved, dict(known.hive.cells), dict(known.hive.bundles),
    )  # fmt: skip


async def test_copies_follow_snapshots_and_changes_and_those_of_another_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror_copy, "COPIED_AT_ONCE", 3)
    originals, copies, rows = await Known.open(), await Known.open(), MirroredRows(_never)
    for number in range(5):
        await originals.topics.create(f"topic-{number}", 2, {}, 1)
    cell = (await originals.hive.add_cell("default", 4)).cell
    _send_snapshots(originals, rows)
    await rows.fill(copies.hive, copies.scheme)
    assert _facts(copies) == _facts(originals)
    with pytest.raises(CommitRefused, match="this node has a copy of the scheme"):
        await copies.topics.create("own", 1, {}, 1)
    copied = asyncio.Event()

    async def changed() -> None:
        copied.set()

    following = asyncio.ensure_future(rows.follow(changed))
    ends = [
        log.follow(lambda change, name=name: rows.take(name, memoryview(change.encode()), is_portion=False))  # type: ignore[misc]
        for name, log in originals.logs.items()
    ]
    await originals.topics.delete("topic-1")
    await originals.hive.set_state(cell, CellState.READY)
    await originals.scheme.configure_node("", {"num.partitions": "3"})
    await _until_equal(originals, copies, copied)
    for end in ends:
        end()
    await originals.topics.create("unseen", 1, {}, 1)
    await originals.topics.delete("topic-2")
    _send_snapshots(originals, rows)
    await _until_equal(originals, copies, copied)
    following.cancel()


async def test_what_does_not_fit_breaks_the_link() -> None:
    originals, rows = await Known.open(), MirroredRows(_never)
    changes = list[bytes]()
    originals.scheme.changes.follow(lambda change: changes.append(change.encode()))
    await originals.topics.create("a", 1, {}, 1)
    for name, data, is_portion in (
        ("users", b"", True), (SCHEME, b"", True), (SCHEME, b"\1\2", False), (SCHEME, changes[0], False),
    ):  # fmt: skip
        with pytest.raises(LinkBroken):
            rows.take(name, memoryview(data), is_portion=is_portion)
    for numbers in (None, {}, {SCHEME: 1}):
        with pytest.raises(LinkBroken, match="numbers of changes were expected"):
            rows.confirm(numbers, 0)


async def test_the_age_is_that_of_the_older_mirror_and_unknown_before_both_are_confirmed() -> None:
    originals, rows = await Known.open(), MirroredRows(_never)
    _send_snapshots(originals, rows)
    numbers = {name: log.number for name, log in originals.logs.items()}
    rows.confirm({**numbers, HIVE: numbers[HIVE] + 1}, 1000)
    assert rows.age_ms(1500) is None
    rows.confirm(numbers, 2000)
    rows.confirm({**numbers, SCHEME: numbers[SCHEME] + 1}, 3000)
    assert rows.age_ms(3500) == 1500


async def test_a_cell_that_the_first_node_does_not_note_is_tried_again() -> None:
    with pytest.raises(CommitRefused, match="no link"):
        await MirroredRows(_never).note_ready(CellId(1))


async def test_what_waits_for_a_change_waits_until_it_is_followed() -> None:
    rows = MirroredRows(_never)
    rows.note_followed(7)
    await rows.followed(7)
    waiting = asyncio.ensure_future(rows.followed(9))
    for number in (8, 3):
        rows.note_followed(number)
        await asyncio.sleep(0)
        assert not waiting.done()
    rows.note_followed(9)
    async with asyncio.timeout(PATIENCE_S):
        await waiting

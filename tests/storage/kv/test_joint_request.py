"""One request to several KV tablets: one commit, all or nothing, in the order of the calls."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.storage.blobs.blob_id import BlobId, tablet_bounds
from pqbroker.storage.engine import Batch, CommitRefused, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.commands import Command, Concat, DeleteRange, KeyMissing, Rename, Write
from pqbroker.storage.kv.joint_request import BatchBeside, execute_together
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.tablet import LOG_CHANNEL, TabletType
from tests.support.depth import examples

FIRST = TabletId(70_000)
COUNT = 3
BLOB = b"x" * 20


class Bench:
    """Three KV tablets of one cell over the memory engine; values from 8 bytes on are blobs."""

    def __init__(self) -> None:
        self.engine = MemoryEngine(1 << 30)

    async def open(self) -> None:
        self.engine.faults.clear()
        self.cell = await Cell.open(self.engine)
        ids = [TabletId(number) for number in range(FIRST, FIRST + COUNT)]
        await self.cell.create_tablets([(number, TabletType.PERSQUEUE, "owner") for number in ids])
        self.tablets = [
            KeyValueTablet(self.cell.storage(number), inline_bytes_max=8, clock=lambda: 1_000) for number in ids
        ]
        for tablet in self.tablets:
            await tablet.start()

    def run(self, *parts: tuple[int, list[Command]]) -> Outcome[None]:
        return execute_together([(self.tablets[number], commands) for number, commands in parts])

    async def contents(self) -> list[dict[bytes, bytes]]:
        return [await contents_of(tablet) for tablet in self.tablets]

    async def stored(self) -> list[dict[bytes, bytes]]:
        """What a restart finds."""
        await self.open()
        return await self.contents()


async def contents_of(tablet: KeyValueTablet) -> dict[bytes, bytes]:
    keys = [key for key, _ in tablet.keys()]
    values = await tablet.read([(key, 0, 0) for key in keys])
    return {key: b"".join(buffers) for key, buffers in zip(keys, values, strict=True)}


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    opened = Bench()
    await opened.open()
    yield opened
    await opened.cell.close()


def write(key: bytes, value: bytes = BLOB) -> Write:
    return Write(key, [value], len(value))


async def test_one_commit_holds_the_changes_of_all_tablets(bench: Bench) -> None:
    before = bench.cell.stats().commits
    await bench.run((0, [write(b"a")]), (1, [write(b"b"), write(b"c", b"tiny")]), (2, [write(b"d")]))
    assert bench.cell.stats().commits == before + 1
    expected = [{b"a": BLOB}, {b"b": BLOB, b"c": b"tiny"}, {b"d": BLOB}]
    assert await bench.contents() == expected
    assert await bench.stored() == expected


async def test_what_is_refused_leaves_no_trace_in_any_tablet(bench: Bench) -> None:
    await bench.run((0, [write(b"a", b"old")]), (1, [write(b"b", b"old")]))
    bench.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await bench.run((0, [write(b"a")]), (1, [DeleteRange(b"b", True, b"b", True)]))
    await bench.run((1, [write(b"c", b"new")]), (2, [write(b"d", b"new")]))
    expected = [{b"a": b"old"}, {b"b": b"old", b"c": b"new"}, {b"d": b"new"}]
    assert await bench.contents() == expected
    assert await bench.stored() == expected


async def test_what_one_tablet_cannot_do_none_does(bench: Bench) -> None:
    with pytest.raises(KeyMissing):
        await bench.run((0, [write(b"a")]), (1, [Rename(b"nothing", b"b")]))
    assert await bench.stored() == [{}, {}, {}]


@pytest.mark.parametrize("numbers", [(), (1,), (1, 2)])
async def test_a_batch_of_another_tablet_is_in_the_same_commit(bench: Bench, numbers: tuple[int, ...]) -> None:
    storage = bench.cell.storage(FIRST)
    parts = [(bench.tablets[number], [write(b"k")]) for number in numbers]

    def batch(body: bytes) -> BatchBeside:
        made = Batch()
        storage.put_blob(made, LOG_CHANNEL, [body], len(body))
        return BatchBeside(storage, made)

    before = bench.cell.stats().commits
    await execute_together(parts, [batch(b"first")])
    assert bench.cell.stats().commits == before + 1
    bench.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await execute_together(parts, [batch(b"refused")])
    stored = [body async for _, body in storage.stored_bodies(*tablet_bounds(FIRST))]
    assert stored == [b"first"]
    assert await bench.stored() == [{b"k": BLOB} if number in numbers else {} for number in range(COUNT)]


async def test_a_batch_of_a_blocked_tablet_fails_the_request_and_leaves_the_others_alone(bench: Bench) -> None:
    storage = bench.cell.storage(FIRST)
    batch = Batch()
    storage.put_blob(batch, LOG_CHANNEL, [b"late"], 4)
    await bench.cell.restart_tablet(FIRST)
    with pytest.raises(ShardLost):
        await execute_together([(bench.tablets[1], [write(b"k")])], [BatchBeside(storage, batch)])
    assert bench.tablets[1].lost is None
    await bench.run((1, [write(b"l")]))
    assert await contents_of(bench.tablets[1]) == {b"l": BLOB}


async def test_a_part_has_a_step_of_its_own_in_every_tablet(bench: Bench) -> None:
    first = bench.run((0, [write(b"a", b"first" * 4)]), (1, [write(b"b", b"first" * 4)]))
    second = [bench.tablets[number].execute([write(b"c", b"later" * 4)]) for number in (0, 1)]
    await asyncio.gather(first, *second)
    for number in (0, 1):
        stored = bench.cell.storage(TabletId(FIRST + number)).stored_blobs(*tablet_bounds(TabletId(FIRST + number)))
        assert len({BlobId.from_key(blob).step async for blob, _ in stored}) == 2
    expected = {b"c": b"later" * 4}
    assert await bench.stored() == [{b"a": b"first" * 4, **expected}, {b"b": b"first" * 4, **expected}, {}]


async def test_a_joint_request_waits_for_keys_in_flight_and_is_waited_for(bench: Bench) -> None:
    bench.engine.faults.hold()
    before = bench.tablets[1].execute([write(b"k", b"1")])
    joint = bench.run((0, [write(b"k", b"2")]), (1, [write(b"k", b"2")]))
    after = [bench.tablets[number].execute([write(b"k", b"3")]) for number in (0, 1)]
    assert [await contents_of(tablet) for tablet in bench.tablets] == [{}, {}, {}]
    bench.engine.faults.release()
    await before
    assert not joint.done()
    async with asyncio.timeout(5):
        await joint
    assert await bench.contents() == [{b"k": b"2"}, {b"k": b"2"}, {}]
    await asyncio.gather(*after)
    assert await bench.contents() == [{b"k": b"3"}, {b"k": b"3"}, {}]


async def test_a_request_about_other_keys_does_not_wait_until_the_joint_one_before_it_is_durable(bench: Bench) -> None:
    bench.engine.faults.hold()
    bench.tablets[1].execute([write(b"k", b"1")])
    joint = bench.run((0, [write(b"k", b"2")]), (1, [write(b"k", b"2")]))
    behind = bench.tablets[1].execute([write(b"l", b"3")])
    bench.engine.faults.release()
    await joint
    assert behind.done()


async def test_a_joint_request_does_not_overtake_what_waits(bench: Bench) -> None:
    bench.engine.faults.hold()
    requests = [
        bench.tablets[0].execute([write(b"k", b"1")]),
        bench.tablets[0].execute([write(b"k", b"2"), write(b"l", b"2")]),
        bench.run((0, [write(b"l", b"3")]), (1, [write(b"l", b"3")])),
    ]
    bench.engine.faults.release()
    await asyncio.gather(*requests)
    assert await bench.contents() == [{b"k": b"2", b"l": b"3"}, {b"l": b"3"}, {}]


async def test_a_part_that_counts_references_waits_until_nothing_is_in_flight(bench: Bench) -> None:
    await bench.run((0, [write(b"a")]))
    bench.engine.faults.hold()
    other = bench.tablets[0].execute([write(b"b")])
    joint = bench.run((0, [Concat((b"a",), b"c", keep_inputs=True)]), (1, [write(b"d")]))
    bench.engine.faults.release()
    await other
    assert not joint.done()
    await joint
    assert await bench.stored() == [{b"a": BLOB, b"b": BLOB, b"c": BLOB}, {b"d": BLOB}, {}]


async def test_requests_that_cross_wait_for_each_other_in_one_order(bench: Bench) -> None:
    bench.engine.faults.hold()
    block = [tablet.execute([write(b"k", b"0")]) for tablet in bench.tablets]
    crossing = [
        bench.run(((number + 1) % 3, [write(b"k", b"%d" % number)]), (number, [write(b"k", b"%d" % number)]))
        for number in range(3)
    ]
    bench.engine.faults.release()
    async with asyncio.timeout(5):
        await asyncio.gather(*block, *crossing)
    assert await bench.contents() == [{b"k": b"2"}, {b"k": b"1"}, {b"k": b"2"}]


async def test_a_lost_shard_fails_what_is_in_flight_and_what_waits(bench: Bench) -> None:
    bench.engine.faults.hold()
    joint = [bench.run((0, [write(b"k")]), (1, [write(b"k")])) for _ in range(2)]
    behind = bench.tablets[1].execute([write(b"k")])
    bench.engine.crash()
    for request in (*joint, behind, bench.run((0, [write(b"k")]), (2, [write(b"k")]))):
        with pytest.raises(ShardLost):
            await request


async def test_a_lost_shard_ends_every_tablet_of_a_request_in_flight(bench: Bench) -> None:
    bench.engine.faults.lose_next()
    joint = bench.run((0, [write(b"k")]), (1, [write(b"k")]))
    with pytest.raises(ShardLost):
        await joint
    assert [isinstance(tablet.lost, ShardLost) for tablet in bench.tablets] == [True, True, False]


async def test_what_waits_behind_a_joint_request_in_another_tablet_fails_with_the_shard(bench: Bench) -> None:
    bench.engine.faults.hold()
    busy = bench.tablets[0].execute([write(b"k")])
    joint = bench.run((0, [write(b"k")]), (1, [write(b"k")]))
    behind = bench.tablets[1].execute([write(b"k")])
    bench.engine.crash()
    async with asyncio.timeout(5):
        for request in (busy, joint, behind):
            with pytest.raises(ShardLost):
                await request


async def test_a_dropped_tablet_fails_its_joint_requests_and_leaves_the_other_tablet_alone(bench: Bench) -> None:
    bench.engine.faults.hold()
    busy = bench.tablets[0].execute([write(b"k", b"0")])
    drop = asyncio.create_task(bench.cell.drop_tablet(FIRST))
    await asyncio.sleep(0)
    waiting = bench.run((0, [write(b"k", b"1")]), (1, [write(b"k", b"1")]))
    behind = bench.tablets[1].execute([write(b"k", b"2")])
    bench.engine.faults.release()
    await busy
    await drop
    with pytest.raises(ShardLost):
        await waiting
    await behind
    with pytest.raises(ShardLost):
        await bench.run((0, [write(b"k", b"3")]), (1, [write(b"k", b"3")]))
    await bench.run((1, [write(b"l", b"4")]), (2, [write(b"l", b"4")]))
    assert await contents_of(bench.tablets[1]) == {b"k": b"2", b"l": b"4"}


async def test_a_part_that_cannot_be_planned_ends_its_tablet_and_leaves_the_others_alone(bench: Bench) -> None:
    strange: Any = SimpleNamespace(order=0)
    with pytest.raises(AssertionError):
        bench.run((0, [write(b"k")]), (1, [strange]))
    assert [tablet.lost is None for tablet in bench.tablets] == [True, False, True]
    with pytest.raises(ShardLost):
        await bench.run((1, [write(b"k")]), (2, [write(b"k")]))
    await bench.run((0, [write(b"l")]), (2, [write(b"l")]))
    assert await bench.stored() == [{b"l": BLOB}, {}, {b"l": BLOB}]


REQUEST = st.dictionaries(st.integers(0, COUNT - 1), st.sampled_from([b"a", b"b"]), min_size=1)
STEP = st.one_of(REQUEST, st.sampled_from(["refuse", "turn"]))


@given(st.lists(STEP, max_size=30))
@settings(max_examples=examples(150), deadline=None)
def test_any_mix_of_requests_ends_as_if_they_ran_one_by_one(steps: list[dict[int, bytes] | str]) -> None:
    asyncio.run(_run_mix(steps))


async def _run_mix(steps: list[dict[int, bytes] | str]) -> None:
    bench = Bench()
    await bench.open()
    requests: list[tuple[dict[int, bytes], bytes, Outcome[None]]] = []
    for number, step in enumerate(steps):
        if step == "refuse":
            bench.engine.faults.refuse_next()
        elif isinstance(step, dict):
            value = b"%d" % number
            parts: list[tuple[int, list[Command]]] = [(tablet, [write(key, value)]) for tablet, key in step.items()]
            requests.append((step, value, bench.run(*parts)))
        else:
            await asyncio.sleep(0)
    async with asyncio.timeout(5):
        outcomes = await asyncio.gather(*(future for _, _, future in requests), return_exceptions=True)
    model: list[dict[bytes, bytes]] = [{} for _ in range(COUNT)]
    for (keys, value, _), outcome in zip(requests, outcomes, strict=True):
        for tablet, key in keys.items():
            if outcome is None:
                model[tablet][key] = value
            else:
                assert isinstance(outcome, CommitRefused)
    assert await bench.contents() == model
    assert await bench.stored() == model
    await bench.cell.close()

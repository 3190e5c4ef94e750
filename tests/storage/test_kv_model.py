"""The KV tablet against a dict, through refusals, requests in flight together, restarts and crashes."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.storage.blobid import tablet_bounds
from pqbroker.storage.cells.cell import Cell
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.kv import KeyValueTablet
from pqbroker.storage.kv_commands import (
    INLINE,
    Command,
    Concat,
    CopyRange,
    DeleteRange,
    KeyMissing,
    KeyRange,
    KeyValueError,
    Piece,
    Rename,
    Write,
)
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablet import TabletType

TABLET = 70_000
State = dict[bytes, bytes]

KEYS = (b"a", b"b", b"aa", b"ba")
keys = st.sampled_from(KEYS)
nonempty = st.sampled_from((1, 7, 8, 9, 20)).flatmap(lambda size: st.binary(min_size=size, max_size=size))
values = st.just(b"") | nonempty


def _write(key: bytes, value: bytes, channel: int) -> Write:
    half = len(value) // 2
    return Write(key, [value[:half], memoryview(value)[half:]], len(value), channel)


ranges = st.builds(KeyRange, keys, st.booleans(), keys, st.booleans())
commands = st.one_of(
    st.builds(_write, keys, values, st.sampled_from((0, 1, 9, INLINE))),
    st.builds(_write, keys, nonempty, st.just(0)),
    st.builds(DeleteRange, keys, st.booleans(), keys, st.booleans()),
    st.builds(Rename, keys, keys),
    st.builds(Concat, st.lists(keys, min_size=1, max_size=2).map(tuple), keys),
    st.builds(CopyRange, st.none() | ranges, st.sampled_from((b"", b"a", b"b")), st.sampled_from((b"", b"a", b"bb"))),
    st.builds(
        Concat,
        st.lists(keys | nonempty.map(lambda value: Piece([value], len(value))), max_size=4).map(tuple),
        keys,
        st.booleans(),
    ),
)
requests = st.lists(commands, min_size=1, max_size=3)


@dataclass(frozen=True)
class Burst:
    """Requests in flight together; then their commits come through, some refused, or the cell crashes."""

    requests: list[list[Command]]
    refusals: int
    ending: str


bursts = st.builds(
    Burst,
    st.lists(requests, min_size=1, max_size=5),
    st.sampled_from((0, 0, 0, 1, 2)),
    st.sampled_from(("durable", "durable", "durable", "restart", "crash")),
)


def apply(state: State, request: Sequence[Command]) -> State:
    """What the request makes of the state. KeyValueError when it cannot be."""
    after = dict(state)
    for command in sorted(request, key=lambda item: [DeleteRange, Rename, CopyRange, Concat, Write].index(type(item))):
        if isinstance(command, Write):
            after[command.key] = b"".join(command.buffers)
        elif isinstance(command, DeleteRange):
            for key in _within(after, command):
                del after[key]
        elif isinstance(command, Rename):
            after[command.new] = _pop(after, command.old)
        elif isinstance(command, CopyRange):
            found = list(after) if command.within is None else _within(after, command.within)
            prefix = command.prefix_to_remove
            copies = {command.prefix_to_add + key[len(prefix) :]: after[key] for key in found if key.startswith(prefix)}
            if b"" in copies:
                raise KeyValueError
            after.update(copies)
        else:
            inputs = [item for item in command.inputs if isinstance(item, bytes)]
            if not command.inputs or any(key not in after for key in inputs):
                raise KeyValueError
            value = b"".join(
                after[item] if isinstance(item, bytes) else b"".join(item.buffers) for item in command.inputs
            )
            if not command.keep_inputs:
                for key in set(inputs):
                    del after[key]
            after[command.output] = value
    return after


def _within(state: State, within: DeleteRange | KeyRange) -> list[bytes]:
    if within.lo > within.hi:
        raise KeyValueError
    return [
        key
        for key in state
        if (within.lo < key or (within.include_lo and within.lo == key))
        and (key < within.hi or (within.include_hi and within.hi == key))
    ]


def _pop(state: State, key: bytes) -> bytes:
    if key not in state:
        raise KeyMissing(key)
    return state.pop(key)


async def _open(engine: MemoryEngine) -> tuple[Cell, KeyValueTablet]:
    cell = await Cell.open(engine)
    await cell.create_tablets([(TABLET, TabletType.PERSQUEUE, "owner")])
    tablet = KeyValueTablet(cell.storage(TABLET), inline_bytes_max=8, clock=lambda: 1_700_000_000_000)
    await tablet.start()
    return cell, tablet


async def _check(engine: MemoryEngine, cell: Cell, tablet: KeyValueTablet, state: State) -> None:
    assert [key for key, _ in tablet.keys(b"")] == sorted(state)
    ordered = sorted(state)
    read = await tablet.read([(key, 0, 0) for key in ordered])
    assert [b"".join(buffers) for buffers in read] == [state[key] for key in ordered]
    for key, entry in tablet.keys(b""):
        assert entry.size == len(state[key]) == sum(entry.pieces)
    held = Counter(blob for _, entry in tablet.keys(b"") for blob in entry.blobs())
    for _, entry in tablet.keys(b""):
        assert entry.is_shared or all(held[blob] == 1 for blob in entry.blobs()), "sharing is written on each holder"
    stored = {blob async for blob, _ in cell.storage(TABLET).stored_blobs(*tablet_bounds(TABLET))}
    assert held.keys() == stored


async def _run(plan: list[Burst]) -> None:
    engine = MemoryEngine(1 << 20)
    cell, tablet = await _open(engine)
    state: State = {key: key * 10 for key in KEYS}
    await tablet.execute([_write(key, value, 0) for key, value in state.items()])
    for burst in plan:
        engine.faults.hold()
        futures = [tablet.execute(request) for request in burst.requests]
        await asyncio.sleep(0)
        if burst.ending == "crash":
            engine.crash()
            for outcome in await asyncio.gather(*futures, return_exceptions=True):
                assert isinstance(outcome, ShardLost | KeyValueError)
        else:
            for _ in range(burst.refusals):
                engine.faults.refuse_next()
            engine.faults.release()
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            refusals = burst.refusals
            for request, outcome in zip(burst.requests, outcomes, strict=True):
                try:
                    after = apply(state, request)
                except KeyValueError:
                    assert isinstance(outcome, KeyValueError)
                    continue
                if refusals:
                    assert isinstance(outcome, CommitRefused)
                    refusals -= 1
                    continue
                assert outcome is None
                state = after
            for _ in range(refusals):
                await asyncio.gather(tablet.execute([]), return_exceptions=True)
            await _check(engine, cell, tablet, state)
        if burst.ending != "durable":
            cell, tablet = await _open(engine)
            await _check(engine, cell, tablet, state)


@settings(max_examples=400, deadline=None)
@given(st.lists(bursts, min_size=1, max_size=8))
def test_the_tablet_does_what_a_dict_does_and_leaks_no_blob(plan: list[Burst]) -> None:
    asyncio.run(_run(plan))

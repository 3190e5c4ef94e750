"""The KV tablet against a dict, through refusals, requests in flight together, restarts and crashes."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.storage.blobs.blob_id import tablet_bounds
from pqbroker.storage.engine import CommitRefused, ShardLost
from pqbroker.storage.ids import TabletId
from pqbroker.storage.kv.changing_values import execute_patching
from pqbroker.storage.kv.commands import (
    INLINE,
    CheckGeneration,
    Command,
    Concat,
    CopyRange,
    DeleteRange,
    Diff,
    GenerationMismatch,
    IncrementGeneration,
    KeyMissing,
    KeyRange,
    KeyValueError,
    Patch,
    Piece,
    Rename,
    Write,
)
from pqbroker.storage.kv.reads import Status, read_range, read_value
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.memory import MemoryEngine
from pqbroker.storage.tablets.cell import Cell
from pqbroker.storage.tablets.tablet import TabletType
from tests.storage.kv_bench import late_reads
from tests.support.depth import examples

TABLET = TabletId(70_000)
State = dict[bytes, bytes]

KEYS = (b"a", b"b", b"aa", b"ba")
LAST = b"z"
keys = st.sampled_from(KEYS)
nonempty = st.sampled_from((1, 7, 8, 9, 20)).flatmap(lambda size: st.binary(min_size=size, max_size=size))
values = st.just(b"") | nonempty


def _write(key: bytes, value: bytes, channel: int) -> Write:
    half = len(value) // 2
    return Write(key, [value[:half], memoryview(value)[half:]], len(value), channel)


lows = keys | st.just(b"")
highs = keys | st.none()
ranges = st.builds(KeyRange, lows, st.booleans(), highs, st.booleans())
commands = st.one_of(
    st.builds(_write, keys, values, st.sampled_from((0, 1, 9, INLINE))),
    st.builds(_write, keys, nonempty, st.just(0)),
    st.builds(DeleteRange, lows, st.booleans(), highs, st.booleans()),
    st.builds(Rename, keys, keys),
    st.builds(Concat, st.lists(keys, min_size=1, max_size=2).map(tuple), keys),
    st.builds(CopyRange, st.none() | ranges, st.sampled_from((b"", b"a", b"b")), st.sampled_from((b"", b"a", b"bb"))),
    st.builds(
        Concat,
        st.lists(keys | nonempty.map(lambda value: Piece([value], len(value))), max_size=4).map(tuple),
        keys,
        st.booleans(),
    ),
    st.builds(CheckGeneration, st.integers(0, 2)),
)
patches = st.builds(
    Patch,
    keys,
    keys,
    st.lists(st.builds(Diff, st.sampled_from((0, 1, 6, 7, 8, 9, 19, 20, 21, 30)), values), max_size=4),
    st.sampled_from((0, 1, INLINE)),
)
requests = st.lists(commands, min_size=1, max_size=3) | st.builds(lambda: [IncrementGeneration()])


@dataclass(frozen=True)
class Burst:
    """Requests in flight together; then their commits come through, some refused, or the cell crashes. `within` is
    read while that happens and afterwards, `page_bytes` at a time. After that `patches` come one by one."""

    requests: list[list[Command]]
    refusals: int
    ending: str
    within: KeyRange | None
    page_bytes: int
    patches: list[Patch]


bursts = st.builds(
    Burst,
    st.lists(requests, min_size=1, max_size=5),
    st.sampled_from((0, 0, 0, 1, 2)),
    st.sampled_from(("durable", "durable", "durable", "restart", "crash")),
    st.none() | ranges,
    st.sampled_from((0, 50, 100, 1000)),
    st.lists(patches, max_size=2),
)
ORDER = (IncrementGeneration, CheckGeneration, DeleteRange, Rename, CopyRange, Concat, Write)


def apply(state: State, request: Sequence[Command]) -> State:
    """What the request makes of the state, whose empty key counts the generations. KeyValueError when it cannot be."""
    generation = state[b""]
    after = {key: value for key, value in state.items() if key}
    for command in sorted(request, key=lambda item: ORDER.index(type(item))):
        if isinstance(command, IncrementGeneration):
            return state | {b"": generation + b"+"}
        if isinstance(command, CheckGeneration):
            if len(generation) != command.generation:
                raise GenerationMismatch
        elif isinstance(command, Write):
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
            assert isinstance(command, Concat), command
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
    return after | {b"": generation}


def apply_patch(state: State, patch: Patch) -> State:
    """What the patch makes of the state. KeyValueError when it cannot be."""
    if patch.original not in state:
        raise KeyMissing(patch.original)
    value = bytearray(state[patch.original])
    for diff in patch.diffs:
        if diff.offset + len(diff.buffer) > len(value):
            raise KeyValueError
        value[diff.offset : diff.offset + len(diff.buffer)] = diff.buffer
    return state | {patch.patched: bytes(value)}


def _within(state: State, within: DeleteRange | KeyRange) -> list[bytes]:
    hi = LAST if within.hi is None else within.hi
    if within.lo > hi:
        raise KeyValueError
    return [
        key
        for key in state
        if (within.lo < key or (within.include_lo and within.lo == key))
        and (key < hi or (within.include_hi and hi == key))
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


async def _patch(tablet: KeyValueTablet, state: State, patch: Patch) -> State:
    """The state after the patch, which is refused exactly when it cannot be."""
    try:
        after = apply_patch(state, patch)
    except KeyValueError as refusal:
        with pytest.raises(type(refusal)):
            await execute_patching(tablet, [patch])
        return state
    await execute_patching(tablet, [patch])
    return after


async def _check(cell: Cell, tablet: KeyValueTablet, state: State) -> None:
    assert tablet.user_generation == len(state[b""])
    ordered = sorted(key for key in state if key)
    assert [key for key, _ in tablet.keys(b"")] == ordered
    read = await tablet.read([(key, 0, 0) for key in ordered])
    assert [b"".join(buffers) for buffers in read] == [state[key] for key in ordered]
    for key, entry in tablet.keys(b""):
        assert entry.size == len(state[key]) == sum(entry.pieces)
    held = Counter(blob for _, entry in tablet.keys(b"") for blob in entry.blobs())
    for _, entry in tablet.keys(b""):
        assert entry.is_shared or all(held[blob] == 1 for blob in entry.blobs()), "sharing is written on each holder"
    stored = {blob async for blob, _ in cell.storage(TABLET).stored_blobs(*tablet_bounds(TABLET))}
    assert held.keys() == stored


async def _read(tablet: KeyValueTablet, within: KeyRange | None, page_bytes: int) -> dict[bytes, bytes] | None:
    """The keys and values of a range, read page by page; None when the range is the wrong way round."""
    found: dict[bytes, bytes] = {}
    rest = within
    while True:
        try:
            page = await read_range(tablet, rest, with_values=True, bytes_max=page_bytes)
        except KeyValueError:
            return None
        assert (page.status is Status.NODATA) == (not page.pairs)
        for pair in page.pairs:
            value = pair.buffers
            if pair.status is Status.OVERRUN:
                assert pair.size > page_bytes
                value = (await read_value(tablet, pair.key)).buffers
            found[pair.key] = b"".join(value)
        if page.status is not Status.OVERRUN:
            return found
        hi, include_hi = (None, False) if within is None else (within.hi, within.include_hi)
        rest = KeyRange(page.pairs[-1].key, False, hi, include_hi)


def _range_of(state: State, within: KeyRange | None) -> dict[bytes, bytes] | None:
    """What a read of the range finds in the model."""
    keyed = {key: value for key, value in state.items() if key}
    try:
        return keyed if within is None else {key: keyed[key] for key in _within(keyed, within)}
    except KeyValueError:
        return None


async def _run(plan: list[Burst]) -> None:
    engine = MemoryEngine(1 << 20)
    cell, tablet = await _open(engine)
    state: State = {key: key * 10 for key in KEYS} | {b"": b""}
    await tablet.execute([_write(key, key * 10, 0) for key in KEYS])
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
            reading = asyncio.ensure_future(_read(tablet, burst.within, 10_000))
            engine.faults.release()
            states = [state]
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
                states.append(state)
            assert await reading in [_range_of(one, burst.within) for one in states], "a read is of one moment"
            for _ in range(refusals):
                await asyncio.gather(tablet.execute([]), return_exceptions=True)
            await _check(cell, tablet, state)
            assert await _read(tablet, burst.within, burst.page_bytes) == _range_of(state, burst.within)
            for patch in burst.patches:
                state = await _patch(tablet, state, patch)
                await _check(cell, tablet, state)
        if burst.ending != "durable":
            cell, tablet = await _open(engine)
            await _check(cell, tablet, state)


@pytest.mark.spec("B.1", "J.2")
@settings(max_examples=examples(400), deadline=None)
@given(st.lists(bursts, min_size=1, max_size=8))
def test_the_tablet_does_what_a_dict_does_and_leaks_no_blob(plan: list[Burst]) -> None:
    with late_reads():
        asyncio.run(_run(plan))

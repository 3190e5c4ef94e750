"""The user generation of a KV tablet: who does not know the latest one changes nothing."""

import asyncio

import pytest

from pqbroker.storage.engine import CommitRefused
from pqbroker.storage.kv.commands import (
    CheckGeneration,
    CopyRange,
    DeleteRange,
    GenerationMismatch,
    IncrementGeneration,
    KeyValueError,
)
from pqbroker.storage.kv.joint_request import execute_together
from tests.storage.kv_bench import BLOB, Bench, write


async def test_it_begins_at_0_and_survives_a_restart(bench: Bench) -> None:
    assert bench.kv.user_generation == 0
    await bench.run(IncrementGeneration())
    await bench.run(IncrementGeneration())
    assert bench.kv.user_generation == 2
    await bench.open()
    assert bench.kv.user_generation == 2


@pytest.mark.spec("B.1")
async def test_a_request_of_another_generation_changes_nothing(bench: Bench) -> None:
    await bench.run(IncrementGeneration())
    for generation in (0, 2):
        with pytest.raises(GenerationMismatch, match=f"generation {generation}; now it is 1"):
            await bench.run(write(b"a"), CheckGeneration(generation))
    await bench.run(write(b"b"), CheckGeneration(1))
    await bench.run(write(b"c"))
    assert sorted(await bench.contents()) == [b"b", b"c"]


@pytest.mark.spec("B.1")
async def test_it_is_raised_by_a_request_of_its_own(bench: Bench) -> None:
    with pytest.raises(KeyValueError, match="no other command"):
        await bench.run(IncrementGeneration(), write(b"a"))
    with pytest.raises(KeyValueError, match="no other command"):
        await bench.run(IncrementGeneration(), CheckGeneration(0))
    assert bench.kv.user_generation == 0
    assert len(bench.kv) == 0


async def test_it_is_no_key_of_the_tablet(bench: Bench) -> None:
    await bench.run(IncrementGeneration())
    await bench.open()
    await bench.run(write(b"a"))
    await bench.run(CopyRange(None, b"", b"copy/"))
    assert sorted(await bench.contents()) == [b"a", b"copy/a"]
    await bench.run(DeleteRange(b"", True, None, True))
    await bench.open()
    assert (len(bench.kv), bench.kv.user_generation) == (0, 1)


async def test_a_check_waits_for_the_increment_in_flight(bench: Bench) -> None:
    bench.engine.faults.hold()
    increment = bench.kv.execute([IncrementGeneration()])
    late = bench.kv.execute([CheckGeneration(0), write(b"late")])
    known = bench.kv.execute([CheckGeneration(1), write(b"known")])
    await asyncio.sleep(0)
    assert bench.kv.user_generation == 0
    bench.engine.faults.release()
    await increment
    with pytest.raises(GenerationMismatch):
        await late
    await known
    assert await bench.contents() == {b"known": BLOB}


async def test_an_increment_waits_for_what_is_in_flight_under_the_generation_before(bench: Bench) -> None:
    bench.engine.faults.hold()
    await_first = bench.kv.execute([CheckGeneration(0), write(b"a")])
    second = bench.kv.execute([IncrementGeneration()])
    bench.engine.faults.refuse_next()
    bench.engine.faults.release()
    with pytest.raises(CommitRefused):
        await await_first
    await second
    assert bench.kv.user_generation == 1


async def test_a_refused_increment_leaves_the_generation_as_it_was(bench: Bench) -> None:
    bench.engine.faults.refuse_next()
    with pytest.raises(CommitRefused):
        await bench.run(IncrementGeneration())
    await bench.run(CheckGeneration(0), write(b"a"))
    await bench.open()
    assert bench.kv.user_generation == 0


async def test_checks_do_not_keep_requests_from_being_in_flight_together(bench: Bench) -> None:
    before = bench.cell.stats().rounds
    await asyncio.gather(*(bench.kv.execute([CheckGeneration(0), write(b"%d" % number)]) for number in range(5)))
    assert bench.cell.stats().rounds == before + 1


async def test_a_joint_request_is_checked_too(bench: Bench) -> None:
    with pytest.raises(GenerationMismatch):
        await execute_together([(bench.kv, [CheckGeneration(3), write(b"a")])])

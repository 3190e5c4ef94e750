"""A crash at each commit of passes over a compacted partition, before it is stored and once it is, in memory and on
disk: no key lacks its last record, a deleted one does not come back, and the next pass finishes the work."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pqbroker.broker.services.cleaning import cleaning_pass
from pqbroker.doctor.findings import Weight
from pqbroker.pq.log.cleaning_windows import WindowLimits
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.faults import Faults
from tests.broker.services.cleaning.bench import RETENTION_MS, Bench, DiskNode
from tests.doctor.test_resharded import look
from tests.pq.rig import Node, check_invariants, check_store

COMMITS_MAX = 40
Found = list[tuple[int, bytes | None, bytes | None]]

pytestmark = [pytest.mark.spec("G.3", "J.1"), pytest.mark.usefixtures("small_windows")]


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of two bodies."""
    monkeypatch.setattr(cleaning_pass, "WindowLimits", partial(WindowLimits, count_max=2))


async def fill(bench: Bench) -> Found:
    """Write bodies with updates, tombstones, and a batch of which nothing stays; what a reader is owed."""
    await bench.start()
    for number in range(6):
        key = b"%d" % number
        await bench.bodies([(b"a", b"%d" % number), (key, b"x" * 2000)], [(key, None), (b"b", key)])
    return await bench.read()


async def check_crash(bench: Bench, faults: Callable[[], Faults], commit: int, *, stored: bool) -> bool:
    """Lose the store at one commit of two passes, the second of which lets tombstones go; False: they had fewer."""
    before = await fill(bench)
    owed = {key: value for _, key, value in before}
    faults().lose_next(after=commit, stored=stored)
    is_lost = False
    for _ in range(2):
        try:
            await bench.clean()
        except KafkaError:
            is_lost = True
            break
        bench.node.now_ms += RETENTION_MS
    await bench.node.restart()
    left = await bench.read()
    assert set(left) <= set(before)
    check_owed(left, owed)
    for _ in range(3):
        assert (await bench.clean()).failure == ""
        bench.node.now_ms += RETENTION_MS
    left = await bench.read()
    check_owed(left, owed)
    assert [(key, value) for _, key, value in left] == [(b"a", b"5"), (b"b", b"5")]
    check_invariants(bench.server.state)
    return is_lost


def check_owed(left: Found, owed: dict[bytes | None, bytes | None]) -> None:
    read = {key: value for _, key, value in left}
    assert all(read.get(key) == value for key, value in owed.items())


@pytest.mark.parametrize("stored", [False, True])
async def test_a_crash_at_each_commit_in_memory(stored: bool) -> None:
    for commit in range(COMMITS_MAX):
        node = Node()
        bench = Bench(node)
        is_lost = await check_crash(bench, lambda node=node: node.engine.faults, commit, stored=stored)  # type: ignore[misc]
        await check_store(node, bench.server)
        await node.stop()
        if not is_lost:
            assert commit > 6
            return
    raise AssertionError("the passes have more commits than were tried")


@pytest.mark.parametrize("stored", [False, True])
async def test_a_crash_at_each_commit_on_disk(stored: bool, tmp_path: Path) -> None:
    for commit in range(COMMITS_MAX):
        path = tmp_path / f"{commit}"
        node = DiskNode(path)
        is_lost = await check_crash(Bench(node), lambda node=node: node.faults, commit, stored=stored)  # type: ignore[misc]
        await node.stop()
        if not is_lost:
            assert commit > 6
            return
    raise AssertionError("the passes have more commits than were tried")


def test_the_doctor_finds_nothing_where_a_pass_was_cut_short(tmp_path: Path) -> None:
    async def cut_short() -> None:
        node = DiskNode(tmp_path / "data")
        bench = Bench(node)
        await fill(bench)
        node.faults.lose_next(after=2, stored=True)
        with pytest.raises(KafkaError):
            await bench.clean()
        await node.stop()

    asyncio.run(cut_short())
    assert [one for one in look(tmp_path / "data") if one.weight is not Weight.HARMLESS] == []

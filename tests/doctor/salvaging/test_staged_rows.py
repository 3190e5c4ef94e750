"""Staged rows of which a piece was in a lost round: the commit that names it is refused, and nothing is half done."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from pqbroker.broker.services.cells.cell_owner import OpenCell
from pqbroker.broker.services.topics import staged_rows
from pqbroker.broker.services.topics.staged_places import BatchRefused, RowsToStage, StagedPlaces
from pqbroker.broker.services.topics.staged_rows import Committed, OnChanged, commit, look_after
from pqbroker.doctor.salvaging.node import NodeSalvage, salvage_node
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.log.staged_rows import Piece, decision, total_of_pieces
from pqbroker.pq.serving.topic import Topic
from tests.broker.services.cells.test_data_cells import ONE, fill, started
from tests.doctor.salvaging.directories import Killed
from tests.doctor.salvaging.test_salvaging import tear
from tests.pq.rig import START_MS, batch, read_all
from tests.storage.cells import copy_alive
from tests.storage.disk.mending.cells import IN_ROWS, damage, rounds

FENCE, LATER = Fence("q", 3), Fence("q", 4)
LARGE = random.Random(5).randbytes(40_000)
SMALL, OTHER = b"small", b"other"


def table(opened: OpenCell, name: str = "rows") -> Topic:
    found = opened.topics.get(name)
    assert found is not None
    return found


async def staged(topic: Topic, *values: bytes, fence: Fence = FENCE) -> list[Piece]:
    """A piece for each value, in the partitions in turn."""
    count, here = len(topic.partitions), StagedPlaces.here(topic, 1 << 20).all[0]
    rows = [RowsToStage(number % count, batch(value)[0], None) for number, value in enumerate(values)]
    return [await here.stage(fence, one) for one in rows]


async def values(topic: Topic) -> list[bytes]:
    return [value or b"" for server in topic.partitions for _, value in await read_all(server)]


async def refused(
    topic: Topic, pieces: Sequence[Piece], fence: Fence = FENCE, on_changed: OnChanged = OnChanged.FAIL
) -> tuple[str, str]:
    """Code and text of the commit's refusal, which names a cure and writes nothing."""
    before = await values(topic)
    with pytest.raises(BatchRefused) as refusal:
        await commit(topic, fence, pieces, on_changed)
    assert refusal.value.cure
    assert await values(topic) == before
    return refusal.value.code, refusal.value.message


class Living:
    """A node whose directory is copied as kill -9 leaves it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.path = path / "copy"

    async def stage(self, *of: bytes, decides: bool, written: int = 0) -> list[Piece]:
        """Stage a piece for each value, decide for them, and write the first ones."""
        async with started(self._path / "living") as opened:
            await opened.topics.create("rows", 2, {})
            topic = table(opened)
            pieces = await staged(topic, *of)
            if decides:
                await topic.partitions[pieces[0].partition].staged.decide(decision(*FENCE[:2], pieces))
            for piece in pieces[:written]:
                pieces_of, key = topic.partitions[piece.partition].staged, piece.key(*FENCE[:2])
                await pieces_of.write(key, await pieces_of.read(key), None)
            await opened.topics.create("last", 1, {})  # no case is about the end of the log
            copy_alive(self._path / "living" / "data", self.path / "data")
        return pieces

    def lose(self, piece: Piece, *, first: bool = True) -> NodeSalvage:
        damage(self._killed.round_with(piece.key(*FENCE[:2]), last=not first), IN_ROWS)
        return self._salvage()

    def lose_last(self) -> NodeSalvage:
        damage(rounds(self.path / "data")[-1], IN_ROWS)
        return self._salvage()

    def tear(self, piece: Piece) -> None:
        """Lose a sector of a piece in a segment, of a round that others follow: no start looks there."""
        tear(self.path / "data", self._killed.round_with(piece.key(*FENCE[:2]), last=False))
        assert salvage_node(self.path / "data", {}, performs=False) == NodeSalvage((), is_damaged=False)

    @property
    def _killed(self) -> Killed:
        return Killed(self.path / "data", {})

    def _salvage(self) -> NodeSalvage:
        shown = salvage_node(self.path / "data", {}, performs=False)
        assert salvage_node(self.path / "data", {}, performs=True) == shown
        assert shown.is_damaged
        return shown


@pytest.fixture
def living(tmp_path: Path) -> Living:
    return Living(tmp_path)


def named(salvage: NodeSalvage) -> list[str]:
    return [f"{loss.where}: {loss.what}" for loss in salvage.losses if loss.kind == "staged rows"]


@pytest.mark.parametrize("is_torn", [False, True])
async def test_a_commit_that_names_a_piece_of_a_lost_round_is_refused_until_its_rows_are_staged_again(
    living: Living, is_torn: bool
) -> None:
    pieces = await living.stage(SMALL, LARGE, decides=False)
    if is_torn:
        living.tear(pieces[1])
    else:
        living.lose(pieces[1])
    async with started(living.path) as opened:
        topic = table(opened)
        code, told = await refused(topic, pieces)
        assert code == "STAGE_LOST"
        assert f"the piece {pieces[1].name!r} of the batch is {'unreadable' if is_torn else 'not there'}" in told
        again = await staged(topic, LARGE, SMALL)
        assert await commit(topic, FENCE, again, OnChanged.FAIL) == Committed(total_of_pieces(again))
        assert sorted(await values(topic)) == sorted([SMALL, LARGE])
        assert [server.staged.count for server in topic.partitions] == [0, 0]


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("written", [0, 1])
async def test_a_decided_batch_with_a_lost_piece_stands_still_until_somebody_says_what_happens_to_it(
    living: Living, is_torn: bool, written: int
) -> None:
    pieces = await living.stage(SMALL, LARGE, OTHER, decides=True, written=written)
    if is_torn:
        living.tear(pieces[1])
    else:
        assert [line for line in named(living.lose(pieces[1])) if line.startswith("rows-1: 1 pieces of batch 3 of ")]
    async with started(living.path) as opened:
        topic = table(opened)
        later = await staged(topic, SMALL, fence=LATER)
        asked = [(pieces, FENCE, OnChanged.FAIL), *((later, LATER, on_changed) for on_changed in OnChanged)]
        for named_pieces, fence, on_changed in asked:
            code, told = await refused(topic, named_pieces, fence, on_changed)
            assert code == "BATCH_DAMAGED"
            assert f"batch 3 of session 'q' stands still with {written} of 3 pieces written" in told
            assert f"its piece {pieces[1].name!r} of 1 rows is unreadable: blob " in told
        with pytest.raises(BatchRefused):
            await look_after(topic, START_MS)
        assert await values(topic) == [SMALL][:written]
    async with started(living.path) as opened:  # whatever a start makes of it
        topic = table(opened)
        assert (await refused(topic, pieces))[0] == "BATCH_DAMAGED"
        kept = await commit(topic, FENCE, [], OnChanged.KEEP)
        assert kept.is_duplicate
        assert sorted(await values(topic)) == sorted([SMALL, OTHER])
        assert not staged_rows.is_being_written(topic)
        again = await staged(topic, SMALL, LARGE, OTHER)
        assert (await commit(topic, FENCE, again, OnChanged.FAIL)).is_duplicate
        later = await staged(topic, SMALL, fence=LATER)
        assert not (await commit(topic, LATER, later, OnChanged.FAIL)).is_duplicate
        assert [server.staged.bytes for server in topic.partitions] == [0, 0]


@pytest.mark.parametrize("written", [0, 1])
async def test_a_decided_batch_with_a_lost_piece_is_written_from_pieces_that_are_staged_again(
    living: Living, written: int
) -> None:
    pieces = await living.stage(SMALL, LARGE, OTHER, decides=True, written=written)
    living.lose(pieces[1])
    async with started(living.path) as opened:
        topic = table(opened)
        with pytest.raises(BatchRefused) as refusal:
            await commit(topic, FENCE, pieces, OnChanged.APPEND)
        assert refusal.value.code == "STAGE_LOST"
        assert staged_rows.is_being_written(topic), "what is decided stays, until all its rows are staged"
        again = await staged(topic, OTHER, LARGE, SMALL)
        assert not (await commit(topic, FENCE, again, OnChanged.APPEND)).is_duplicate
        assert sorted(await values(topic)) == sorted([SMALL, LARGE, OTHER, *[SMALL][:written]])
        assert (await commit(topic, FENCE, await staged(topic, SMALL, LARGE, OTHER), OnChanged.FAIL)).is_duplicate
        assert [server.staged.count for server in topic.partitions] == [0, 0]


@pytest.mark.parametrize("written", [1, 2])
async def test_a_batch_whose_pieces_are_known_to_be_written_ends_beside_a_lost_round(
    living: Living, written: int
) -> None:
    pieces = await living.stage(SMALL, OTHER, LARGE, decides=True, written=written)
    assert not [line for line in named(living.lose_last()) if "BATCH_DAMAGED" in line]
    async with started(living.path) as opened:
        topic = table(opened)
        again = await staged(topic, LARGE, SMALL, OTHER)
        assert (await commit(topic, FENCE, again, OnChanged.FAIL)).is_duplicate
        assert sorted(await values(topic)) == sorted([SMALL, OTHER, LARGE])
        assert pieces


async def test_a_piece_whose_writing_was_lost_is_written_again(living: Living) -> None:
    """Its rows are lost with the round, and the piece is there as before it."""
    pieces = await living.stage(SMALL, OTHER, decides=True, written=1)
    living.lose(pieces[0], first=False)
    async with started(living.path) as opened:
        topic = table(opened)
        assert await values(topic) == []
        assert (await commit(topic, FENCE, pieces, OnChanged.FAIL)).is_duplicate
        assert sorted(await values(topic)) == sorted([SMALL, OTHER])


async def test_a_lost_piece_of_a_batch_whose_decision_is_in_another_cell_is_not_taken_for_written(
    tmp_path: Path,
) -> None:
    async with started(tmp_path / "living") as opened:
        await fill(opened)
        topic = table(opened, "t")
        far = [topic.record.cell_of(number) for number in (0, 1)].index(ONE)
        here = StagedPlaces.here(topic, 1 << 20).all[0]
        pieces = [await here.stage(FENCE, RowsToStage(index, batch(SMALL)[0], None)) for index in (1 - far, far)]
        await topic.partitions[1 - far].staged.decide(decision(*FENCE[:2], pieces))
        await topic.partitions[far].write(*batch(OTHER))
        copy_alive(tmp_path / "living" / "data", tmp_path / "copy" / "data")
    cell = tmp_path / "copy" / "data" / "cells" / "1"
    damage(Killed(cell, {}).round_with(pieces[1].key(*FENCE[:2])), IN_ROWS)
    shown = salvage_node(tmp_path / "copy" / "data", {}, performs=True)
    assert [line for line in named(shown) if f"cell 1: t-{far}: 1 pieces of batch 3 of session 'q'" in line]
    async with started(tmp_path / "copy") as opened:
        assert (await refused(table(opened, "t"), pieces))[0] == "BATCH_DAMAGED"

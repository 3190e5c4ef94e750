"""Staged rows of a topic whose partitions are at two places: batches are committed over both."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from pqbroker.broker.services.topics.staged_places import BatchRefused, RowsToStage, StagedHere, StagedPlaces
from pqbroker.broker.services.topics.staged_rows import Committed, OnChanged, commit, look_after
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.log.staged_rows import Decision, Piece, decision, total_of_pieces
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.services.cells.test_data_cells import started
from tests.pq.rig import START_MS, batch, read_all

FENCE, LATER = Fence("q", 3), Fence("q", 4)
TURNS = 50
"""Turns of the loop after which everything waits that has nothing to do, or waits for the disk."""


@pytest.fixture
async def topic(tmp_path: Path) -> AsyncIterator[Topic]:
    async with started(tmp_path) as opened:
        await opened.topics.create("rows", 3, {})
        found = opened.topics.get("rows")
        assert found is not None
        yield found


def places(topic: Topic) -> StagedPlaces:
    """Return a place with the first two partitions, and one with the last."""
    return StagedPlaces(3, [(StagedHere(topic, some, 1 << 20), some) for some in ((0, 1), (2,))])


async def stage(topic: Topic, fence: Fence, *values: bytes) -> list[Piece]:
    """Stage a piece for each value, in the partitions in turn, the last one first."""
    found = places(topic)
    return [
        await found.of(2 - number % 3).stage(fence, RowsToStage(2 - number % 3, batch(value)[0], None))
        for number, value in enumerate(values)
    ]


async def values(topic: Topic) -> list[bytes]:
    return sorted([value or b"" for server in topic.partitions for _, value in await read_all(server)])


async def test_a_batch_is_committed_over_both_places_once(topic: Topic) -> None:
    pieces = await stage(topic, FENCE, b"a", b"b", b"c")
    left = await stage(topic, FENCE, b"x", b"y", b"z")
    for is_duplicate in (False, True):
        told = await commit(topic, FENCE, pieces, OnChanged.FAIL, places)
        assert told == Committed(total_of_pieces(pieces), is_duplicate=is_duplicate)
    assert await values(topic) == [b"a", b"b", b"c"]
    with pytest.raises(BatchRefused, match=f"the piece '{left[-1].name}' of the batch is not there"):
        await commit(topic, LATER, left, OnChanged.FAIL, places)
    absent = [*await stage(topic, LATER, b"d"), left[0]._replace(partition=9)]
    with pytest.raises(BatchRefused, match=f"the piece '{absent[1].name}' of the batch is not there"):
        await commit(topic, LATER, absent, OnChanged.FAIL, places)


@pytest.mark.parametrize("by", ["the next batch", "itself", "nobody's request"])
async def test_a_batch_that_was_decided_at_the_second_place_is_written_to_its_end(topic: Topic, by: str) -> None:
    pieces = await stage(topic, FENCE, b"a", b"b", b"c")
    decided = decision(*FENCE[:2], pieces)
    assert decided.home == 2
    await topic.partitions[2].staged.decide(decided)
    if by == "the next batch":
        await commit(topic, LATER, await stage(topic, LATER, b"d"), OnChanged.FAIL, places)
    elif by == "itself":
        assert (await commit(topic, FENCE, pieces, OnChanged.FAIL, places)).is_duplicate
    else:
        await look_after(topic, START_MS - 1, places)
    assert await values(topic) == [b"a", b"b", b"c", b"d"][: 4 if by == "the next batch" else 3]
    assert [server.staged.decision_count for server in topic.partitions] == [0, 0, 0]
    assert [server.staged.count for server in topic.partitions] == [0, 0, 0]


async def test_pieces_of_no_batch_go_at_both_places(topic: Topic) -> None:
    await stage(topic, FENCE, b"a", b"b", b"c")
    await look_after(topic, START_MS, places)
    assert [server.staged.count for server in topic.partitions] == [1, 1, 1]
    await look_after(topic, START_MS + 1, places)
    assert [server.staged.count for server in topic.partitions] == [0, 0, 0]


async def test_pieces_do_not_go_while_they_are_decided_for(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    decide, looks = StagedHere.decide, list[asyncio.Future[None]]()

    async def slowly(self: StagedHere, decided: Decision) -> None:
        looks.append(asyncio.ensure_future(look_after(topic, START_MS + 1, places)))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        await decide(self, decided)

    monkeypatch.setattr(StagedHere, "decide", slowly)
    pieces = await stage(topic, FENCE, b"a", b"b", b"c")
    assert not (await commit(topic, FENCE, pieces, OnChanged.FAIL, places)).is_duplicate
    await looks[0]
    assert await values(topic) == [b"a", b"b", b"c"]


async def test_pieces_that_go_are_not_decided_for(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    forget, commits = StagedHere.forget, list[asyncio.Future[Committed]]()
    pieces = await stage(topic, FENCE, b"a")

    async def slowly(self: StagedHere, before_ms: int, decided: Sequence[Decision]) -> None:
        commits.append(asyncio.ensure_future(commit(topic, FENCE, pieces, OnChanged.FAIL, places)))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        await forget(self, before_ms, decided)

    monkeypatch.setattr(StagedHere, "forget", slowly)
    await look_after(topic, START_MS + 1, places)
    for told in await asyncio.gather(*commits, return_exceptions=True):
        assert isinstance(told, BatchRefused)
        assert told.code == "STAGE_LOST"
    assert [server.staged.decision_count for server in topic.partitions] == [0, 0, 0]


async def test_pieces_that_two_delete_are_counted_once(topic: Topic) -> None:
    (piece,) = await stage(topic, FENCE, b"a")
    staged = topic.partitions[2].staged
    await asyncio.gather(*(staged.drop([piece.key(*FENCE[:2])]) for _ in range(2)))
    assert (staged.count, staged.bytes) == (0, 0)


async def test_a_cell_that_closed_does_not_say_what_is_written(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = await stage(topic, FENCE, b"a")
    place = places(topic).of(2)
    monkeypatch.setattr(PartitionServer, "is_loaded", False)
    for asked in (
        place.decisions(None), place.missing(FENCE, pieces), place.write(FENCE, pieces, math.inf, leaves_out=True)
    ):  # fmt: skip
        with pytest.raises(KafkaError) as refusal:
            await asked
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

"""The end of a transaction over many partitions: its markers and offsets are planned in slices."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest

from pqbroker.broker.services.transactional_producers import ending, ending_at_once
from pqbroker.pq.log.consumers import ConsumerOffset
from pqbroker.pq.serving.offsets import Outcomes, TopicPartition
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.control_records import EndMarker
from pqbroker.storage.outcome import Outcome
from tests.broker.conftest import Node
from tests.broker.kafka.transacting import committed_values
from tests.broker.services.transactional_producers.test_crashes import until_ended
from tests.broker.services.transactional_producers.test_ending_at_once import begun

PARTITIONS = 8
SLICE = 3


async def test_markers_of_many_partitions_are_planned_in_slices(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "MARKED_AT_ONCE", SLICE)
    monkeypatch.setattr(ending_at_once, "WRITES_AT_ONCE", 1)
    planned = [0]
    end_in = ending.end_in

    def counted(topics: Topics, server: PartitionServer, marker: EndMarker) -> Outcome[int]:
        if planned[-1] == 0:
            asyncio.get_running_loop().call_soon(planned.append, 0)
        planned[-1] += 1
        return end_in(topics, server, marker)

    monkeypatch.setattr(ending, "end_in", counted)
    await node.create_topic("t", PARTITIONS)
    producer = await begun(node, partitions=PARTITIONS)
    assert await producer.end(is_commit=True, version=5) == "NONE"
    await until_ended(producer)
    assert sum(planned) == PARTITIONS
    assert max(planned) == SLICE
    client = await node.connect()
    assert [await committed_values(client, "t", index) for index in range(PARTITIONS)] == [[b"x"]] * PARTITIONS


async def test_offsets_of_many_partitions_are_committed_in_slices_none_over_a_later_one(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "OFFSETS_AT_ONCE", SLICE)
    monkeypatch.setattr(ending_at_once, "WRITES_AT_ONCE", 1)
    await node.create_topic("t", PARTITIONS)
    producer = await begun(node, partitions=1, has_offset=False)
    for index in range(PARTITIONS):
        assert await producer.commit_offset("t", 7, partition=index, version=5) == "NONE"
    offsets = node.server.node.cell.current.topics.offsets
    commit, refused_offsets, sizes = offsets.commit, ending._refused_offsets, list[int]()
    later: list[Awaitable[Outcomes]] = []

    def counted(group_id: str, states: Mapping[TopicPartition, ConsumerOffset | None]) -> Awaitable[Outcomes]:
        sizes.append(len(states))
        return commit(group_id, states)

    async def and_a_later_one(*given: Any) -> Any:
        refused = await refused_offsets(*given)
        if len(sizes) == 2:
            node.clock.now_ms += 1000
            later.append(commit("g", {("t", PARTITIONS - 1): ConsumerOffset(99, commit_ms=node.clock())}))
        return refused

    monkeypatch.setattr(offsets, "commit", counted)
    monkeypatch.setattr(ending, "_refused_offsets", and_a_later_one)
    assert await producer.end(is_commit=True, version=5) == "NONE"
    await until_ended(producer)
    assert await later[0] == {("t", PARTITIONS - 1): None}
    assert sizes == [SLICE, SLICE, PARTITIONS - 2 * SLICE - 1]
    found = [offset.offset for offset in offsets.of("g").values()]
    assert found == [7] * (PARTITIONS - 1) + [99]

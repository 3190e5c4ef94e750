"""The end of a transaction over many partitions: its markers are planned in slices."""

import asyncio

import pytest

from pqbroker.broker.services.transactional_producers import ending, ending_at_once
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

"""A partition with Kafka's transactions in each state, for those who read it."""

from pqbroker.pq.serving.partition_server import PartitionServer
from tests.broker.conftest import Node
from tests.pq.rig import batch, transactional

P, Q = 70, 71


async def begun(node: Node) -> PartitionServer:
    """A topic's partition: 0 plain, 1 and 3 aborted, 2 committed, 4 and 5 the markers, 6 open, 7 plain behind it."""
    await node.create_topic("t")
    topic = node.server.node.cell.current.topics.get("t")
    assert topic is not None
    server = topic.partitions[0]
    await server.write(*batch(b"0"))
    await server.write(*transactional(b"1", producer=(P, 0, 0)))
    await server.write(*transactional(b"2", producer=(Q, 0, 0)))
    await server.write(*transactional(b"3", producer=(P, 0, 1)))
    await server.end_transaction(P, 0, 4, is_commit=False)
    await server.end_transaction(Q, 0, 4, is_commit=True)
    await server.write(*transactional(b"6", producer=(Q, 0, 1)))
    await server.write(*batch(b"7"))
    return server

"""Work on partitions of ordered tables of this node: what the first one asks for (`partitions_away.py` says when), and
writing their rows out.

A partition that leaves its state stays so until the first node has it settled, or is gone: then it follows the scheme.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pqbroker.broker.ground.refusals import translate
from pqbroker.broker.services.tables.partitions_away import PartitionWork
from pqbroker.broker.services.tables.work_away import indexes_of
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Moving, Topic
from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.engine import CommitRefused
from pqbroker.tables.mount import MountState
from pqbroker.tables.refusals import TableError

FLUSHED_AT_ONCE: Final = 200
"""Tablets of one command: of thousands each turn of the loop has some."""


async def flush(partitions: Sequence[PartitionServer]) -> None:
    """Have all rows of partitions of this node lie in the body. CommitRefused, ShardLost, KafkaError."""
    for start in range(0, len(partitions), FLUSHED_AT_ONCE):
        await asyncio.gather(*(partition.flush() for partition in partitions[start : start + FLUSHED_AT_ONCE]))


async def work_on_partitions(topics: Topics, asked: Mapping[str, Any]) -> None:
    """Do at this node what the first one asks for. TableError, CommitRefused, ShardLost; LookupError, TypeError,
    ValueError for what is no work of this version."""
    work, topic = PartitionWork(asked["work"]), topics.by_id(bytes.fromhex(asked["topic"]))
    if topic is None or topic.record.table is None:
        raise TableError("NO_TABLE", "the table was deleted meanwhile", "GET /v1/tables lists the tables.")
    states = asked["tablets"]
    given = dict(zip(indexes_of(topic.record, map(int, states)), states.values(), strict=True))
    if work is PartitionWork.SETTLE:
        _settle(topic, given)
        return
    end = asyncio.get_running_loop().create_future()
    topic.moving.update({index: Moving(MountState(state).value, end) for index, state in given.items()})
    topic.renew()
    try:
        await flush([topic.partitions[index] for index in given])
    except KafkaError as error:
        _, text = translate(error)
        raise CommitRefused(text) from None


def follow_scheme(topics: Topics) -> None:
    """Have partitions on their way to a state be in the one that the scheme has: the first node is gone."""
    for name in [*topics.names()]:
        topic = topics.get(name)
        if topic is not None and topic.moving:
            _settle(topic, [*topic.moving])


def _settle(topic: Topic, indexes: Iterable[int]) -> None:
    for index in indexes:
        topic.moving.pop(index, None)
    topic.renew()

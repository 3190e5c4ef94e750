"""Dead letters of a table that is fed from a topic, sent to the topic that it has for them.

They are durable there before the progress passes them: a crash between the two sends them twice.
"""

import asyncio
from collections.abc import Sequence

from pqbroker.broker.services.materializing.fed_elsewhere import FedElsewhere
from pqbroker.broker.services.tables.callers import TablesNode, TablesOpening
from pqbroker.broker.services.topics.partitions import check_batch
from pqbroker.broker.services.topics.record_checks import preparation_of
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.records import read_header
from pqbroker.storage.tablets.scheme_materializations import MaterializationRecord
from pqbroker.tables.refusals import TableError


def letter_bytes_max(opened: TablesOpening, record: MaterializationRecord) -> int | None:
    """Return the bytes of a batch of dead letters at most; None: no topic takes them. TableError NO_LETTER_TOPIC."""
    return _topic(opened, record).config.max_message_bytes if record.letter_topic else None


async def send_letters(
    node: TablesNode, opened: TablesOpening, record: MaterializationRecord, batches: Sequence[memoryview]
) -> None:
    """Write batches of dead letters, at the node that leads the topic's first partition. TableError NO_LETTER_TOPIC,
    and what another node refuses; KafkaError as of a produce; CommitRefused, ShardLost."""
    for batch in batches:
        topic = _topic(opened, record)
        number = node.leaders.only_node(topic, (0,))
        if number is None:
            await write_letters(topic, batch)
        else:
            await FedElsewhere(node, number).letters(topic, batch)


async def write_letters(topic: Topic, batch: memoryview) -> None:
    """Write a batch of dead letters to the first partition of a topic of this node. Raises as a produce."""
    header, weights = check_batch(topic, batch), None
    preparation = preparation_of(topic)
    if preparation is not None:
        batch, header, weights = await asyncio.to_thread(preparation.apply, batch, read_header(batch))
    await topic.partitions[0].write(batch, header, weights)


def _topic(opened: TablesOpening, record: MaterializationRecord) -> Topic:
    topic = opened.topics.get(record.letter_topic)
    if topic is None:
        text = f"there is no topic {record.letter_topic!r}, which takes the dead letters"
        raise TableError("NO_LETTER_TOPIC", text, "Create it, or drop the materialization and make it without.")
    return topic

"""Records: writing, reading, finding and removing them."""

from collections.abc import Iterator
from typing import Any

from crc32c import crc32c

from pqbroker.broker.kafka.handlers import (
    delete_records,
    fetch,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from pqbroker.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pqbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from pqbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pqbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pqbroker.protocol.records import CONTROL, TRANSACTIONAL, Record, encode_batch
from tests.kafka_comparison.rendering import UNKNOWN_ID
from tests.kafka_comparison.shapes import script, varied
from tests.kafka_comparison.side import SHARED, T0_MS, Side, batch

_WRITTEN_BY_ID = 13
_READ_BY_ID = 13


def producing(side: Side, topic: str, data: bytes | bytearray | None, partition: int = 0, **fields: Any
              ) -> ProduceRequest:  # fmt: skip
    """Return a request to write, in the form of the case's version."""
    records = None if data is None else memoryview(data)
    partitions = [PartitionProduceData(index=partition, records=records)]
    named = {"topic_id": side.topic_id(topic)} if side.version >= _WRITTEN_BY_ID else {"name": topic}
    topics = [TopicProduceData(partition_data=partitions, **named)]
    wanted: dict[str, Any] = {"acks": -1, "timeout_ms": 2000, "topic_data": topics} | fields
    return ProduceRequest(**wanted)


@varied(produce.API, fixed=("acks",))
def a_batch(side: Side) -> ProduceRequest:
    return producing(side, side.topic(), batch())


@script(produce.API)
def acknowledgements(side: Side) -> None:
    topic = side.topic()
    for acks in (-1, 1, 2, -2):
        side.compare(producing(side, topic, batch(), acks=acks), str(acks))


@script(produce.API)
def without_acknowledgement(side: Side) -> None:
    topic = side.topic()
    for label, partition in {"right": 0, "an unknown partition": 9}.items():
        connection = side.connection()
        connection.send(producing(side, topic, batch(), partition, acks=0), side.version)
        connection.forget()
        side.keep(str(type(connection.ask(MetadataRequest(topics=[]), 9)).__name__), label)


@script(produce.API)
def places_to_write(side: Side) -> None:
    topic = side.topic()
    for partition in (1, -1, 2**31 - 1):
        side.compare(producing(side, topic, batch(), partition), f"partition {partition}")
    if side.version < _WRITTEN_BY_ID:
        for label, name in {"unknown": f"{topic}-no", "empty": "", "odd": "a b", "long": "n" * 250}.items():
            side.compare(producing(side, name, batch()), label)
    else:
        asked = producing(side, topic, batch())
        for label, topic_id in {"unknown": UNKNOWN_ID, "zero": b"\0" * 16}.items():
            asked.topic_data[0].topic_id = topic_id
            side.compare(asked, label)


def batches() -> Iterator[tuple[str, bytes]]:
    """Yield batches that are ordinary, odd and wrong."""
    good = bytes(batch())
    yield "empty", b""
    yield "cut", good[:-1]
    yield "a header cut", good[:30]
    yield "longer than it is", good + b"\0"
    yield "two", good + good
    yield "a wrong sum", good[:17] + b"\0\0\0\0" + good[21:]
    yield "magic 1", good[:16] + b"\x01" + good[17:]
    yield "magic 3", good[:16] + b"\x03" + good[17:]
    yield "control", bytes(batch(attributes=CONTROL))
    yield "transactional", bytes(batch(attributes=TRANSACTIONAL))
    yield "transactional with a producer", bytes(
        batch(attributes=TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0)
    )
    yield "codec 5", bytes(_with_attributes(5))
    yield "a base offset", bytes(batch(base_offset=70))
    yield "no sequence", bytes(batch(producer_id=5, producer_epoch=0))
    yield "no epoch", bytes(batch(producer_id=5, base_sequence=0))
    for codec in range(5):
        yield f"codec {codec}", bytes(batch(codec=codec))
    yield "no records", bytes(encode_empty())
    yield "no key", bytes(encode_batch([Record(0, T0_MS, None, b"v")]))
    yield "no value", bytes(encode_batch([Record(0, T0_MS, b"k", None)]))
    yield "headers", bytes(encode_batch([Record(0, T0_MS, b"k", b"v", (("h", b"1"), ("h", None)))]))
    yield "times apart", bytes(encode_batch([Record(0, T0_MS, b"k", b"v"), Record(1, T0_MS - 9, b"k", b"w")]))
    yield "time -1", bytes(encode_batch([Record(0, -1, b"k", b"v")]))
    yield "time 0", bytes(encode_batch([Record(0, 0, b"k", b"v")]))
    yield "a far time", bytes(encode_batch([Record(0, 4_000_000_000_000, b"k", b"v")]))
    yield "too large", bytes(encode_batch([Record(0, T0_MS, b"k", b"v" * 1_048_600)]))


def _with_attributes(attributes: int) -> bytearray:
    return encode_batch([Record(0, T0_MS, b"k", b"v")], attributes=attributes)


def encode_empty() -> bytearray:
    """Return a batch that says it has no records."""
    made = batch()[:61]
    made[8:12] = (49).to_bytes(4, "big")
    made[57:61] = bytes(4)
    made[17:21] = crc32c(memoryview(made)[21:]).to_bytes(4, "big")
    return made


@script(produce.API)
def odd_batches(side: Side) -> None:
    for number, (label, data) in enumerate(batches()):
        topic = side.topic(suffix=f"-{number}")
        side.compare(producing(side, topic, data), label)


@script(produce.API, since=9)
def batches_of_other_topics(side: Side) -> None:
    for number, configs in enumerate((
        {"cleanup.policy": "compact"}, {"message.timestamp.type": "LogAppendTime"}, {"compression.type": "gzip"},
        {"message.timestamp.before.max.ms": "1000"}, {"max.message.bytes": "90"},
    )):  # fmt: skip
        for label, data in batches():
            if label in ("no key", "codec 0", "codec 4", "times apart", "a far time", "headers", "no value"):
                topic = side.topic(configs=configs, suffix=f"-{number}-{label.replace(' ', '')}")
                side.compare(producing(side, topic, data), f"{configs} {label}")


@script(produce.API)
def sequences(side: Side) -> None:
    topic, producer = side.topic(), side.producer_id()
    for epoch, sequence in (
        (0, 0), (0, 0), (0, 1), (0, 3), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (0, 7), (0, 0), (0, 2), (0, 7),
        (1, 5), (1, 0), (0, 8), (1, 1), (1, 3),
    ):  # fmt: skip
        data = batch(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        side.compare(producing(side, topic, data), f"{len(side.answers)}: {epoch} {sequence}")


@script(produce.API)
def sequences_in_part(side: Side) -> None:
    topic, producer = side.topic(), side.producer_id()
    records = [Record(0, T0_MS, b"k", b"v")] * 3
    for count, sequence in ((3, 0), (3, 3), (2, 0), (1, 1), (3, 1), (3, 4), (3, 6), (3, 6), (2, 7)):
        data = encode_batch(records[:count], producer_id=producer, producer_epoch=0, base_sequence=sequence)
        side.compare(producing(side, topic, data), f"{len(side.answers)}: {count} from {sequence}")


@script(produce.API)
def first_sequences(side: Side) -> None:
    for number, sequence in enumerate((0, 5, 2**31 - 1)):
        topic = side.topic(suffix=f"-{number}")
        for step, each in enumerate((sequence, (sequence + 1) % 2**31)):
            data = batch(producer_id=7_000, producer_epoch=3, base_sequence=each)
            side.compare(producing(side, topic, data), f"{sequence} {step}")


# Reading.


def reading(side: Side, topic: str = SHARED, partition: int = 0, offset: int = 0, **fields: Any) -> FetchRequest:
    """Return a request to read without a session, in the form of the case's version."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    named = {"topic_id": side.topic_id(topic)} if side.version >= _READ_BY_ID else {"topic": topic}
    wanted = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    return FetchRequest(**wanted | {"topics": [FetchTopic(partitions=[asked], **named)]} | fields)


EPOCHS = tuple(
    f"topics.partitions.{name}" for name in ("leader_epoch", "current_leader_epoch", "last_fetched_epoch")
)
"""Fields that scripts give values relative to a broker's first epoch."""


@varied(fetch.API, fixed=("max_wait_ms", "forgotten_topics_data", *EPOCHS))
def a_partition(side: Side) -> FetchRequest:
    return reading(side)


@script(fetch.API)
def places_to_read(side: Side) -> None:
    for partition, offset in ((0, 0), (0, 1), (0, 3), (0, 4), (0, -1), (0, 2**62), (1, 0), (1, 1), (7, 0), (-1, 0)):
        side.compare(reading(side, SHARED, partition, offset), f"{partition} {offset}")
    if side.version < _READ_BY_ID:
        for name in ("nobody", "", "a b"):
            side.compare(reading(side, name), f"topic {name}")


@script(fetch.API)
def sizes_to_read(side: Side) -> None:
    for size in (0, 1, 80, 100, 200):
        side.compare(reading(side, max_bytes=size), f"{size} in all")
        asked = reading(side)
        asked.topics[0].partitions[0].partition_max_bytes = size
        side.compare(asked, f"{size} of the partition")


@script(fetch.API, since=9)
def epochs_to_read(side: Side) -> None:
    first = side.facts.first_epoch
    for difference in (0, 1):
        asked = reading(side)
        asked.topics[0].partitions[0].current_leader_epoch = first + difference
        side.compare(asked, f"current {difference}")
        asked = reading(side)
        asked.topics[0].partitions[0].last_fetched_epoch = first + difference
        side.compare(asked, f"last {difference}")


@script(fetch.API, since=7)
def sessions(side: Side) -> None:
    connection = side.connection()
    for label, session, epoch in (("unknown", 77, 1), ("unknown, first", 77, 0), ("none, second", 0, 1)):
        side.compare(reading(side, session_id=session, session_epoch=epoch), label)
    made = side.compare(reading(side, session_epoch=0), "made", connection)
    identity = getattr(made, "session_id", 0)
    for label, epoch in (("second", 1), ("third, late", 3), ("second again", 1)):
        request = reading(side, session_id=identity, session_epoch=epoch, topics=[])
        side.compare(request, label, connection)
    named = {"topic_id": side.topic_id(SHARED)} if side.version >= _READ_BY_ID else {"topic": SHARED}
    forgotten = [ForgottenTopic(partitions=[0], **named)]
    request = reading(side, session_id=identity, session_epoch=2, topics=[], forgotten_topics_data=forgotten)
    side.compare(request, "forgets", connection)
    side.compare(reading(side, session_id=identity, session_epoch=3, topics=[]), "empty", connection)
    side.compare(reading(side, session_id=identity, session_epoch=-1, topics=[]), "ends", connection)


# Offsets, epochs, producers.


def finding(timestamp: int = -1, partition: int = 0, topic: str = SHARED, **fields: Any) -> ListOffsetsRequest:
    """Return a request for an offset by time."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **fields)
    topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
    return ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=2000)


@varied(list_offsets.API, fixed=EPOCHS)
def an_end(side: Side) -> ListOffsetsRequest:
    return finding()


@script(list_offsets.API)
def times(side: Side) -> None:
    for timestamp in (*range(-8, 1), T0_MS - 1, T0_MS, T0_MS + 1, T0_MS + 1000, T0_MS + 2000, T0_MS + 2001, 2**63 - 1):
        for partition in (0, 1):
            side.compare(finding(timestamp, partition), f"{partition} {timestamp}")
    for partition in (7, -1):
        side.compare(finding(-1, partition), f"{partition}")
    for topic in ("nobody", "", "a b"):
        side.compare(finding(topic=topic), f"topic {topic}")


@script(list_offsets.API, since=4)
def epochs_to_find(side: Side) -> None:
    for difference in (0, 1):
        for timestamp in (-1, -2, T0_MS):
            side.compare(
                finding(timestamp, current_leader_epoch=side.facts.first_epoch + difference),
                f"{difference} {timestamp}",
            )


@varied(offset_for_leader_epoch.API, fixed=EPOCHS)
def an_epoch(side: Side) -> OffsetForLeaderEpochRequest:
    return of_epoch(side.facts.first_epoch)


def of_epoch(epoch: int, current: int = -1, topic: str = SHARED, partition: int = 0) -> OffsetForLeaderEpochRequest:
    """Return a request for the end of an epoch."""
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(
        replica_id=-2, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )  # fmt: skip


@script(offset_for_leader_epoch.API)
def ends_of_epochs(side: Side) -> None:
    first = side.facts.first_epoch
    for difference in (0, 1, 9):
        side.compare(of_epoch(first + difference), f"{difference}")
        side.compare(of_epoch(first, first + difference), f"current {difference}")
        side.compare(of_epoch(first + difference, partition=1), f"of an empty partition {difference}")
    for topic in ("nobody", "", "a b"):
        side.compare(of_epoch(first, topic=topic), f"topic {topic}")


@varied(init_producer_id.API, fixed=("transactional_id",))
def a_producer(side: Side) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


@script(init_producer_id.API)
def a_transactional_producer(side: Side) -> None:
    side.compare(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000), "empty")


@varied(delete_records.API)
def records_to_delete(side: Side) -> DeleteRecordsRequest:
    topic = side.topic(2)
    for number in range(3):
        side.write(topic, batch(number))
    asked = DeleteRecordsPartition(partition_index=0, offset=2)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=2000)


@script(delete_records.API)
def offsets_to_delete_to(side: Side) -> None:
    topic = side.topic()
    for number in range(3):
        side.write(topic, batch(number))
    for offset in (-2, 4, 0, 2, 1, -1, 3):
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsTopic(name=topic, partitions=[asked])]
        side.compare(DeleteRecordsRequest(topics=topics, timeout_ms=2000), str(offset))


@script(delete_records.API)
def records_of_a_compacted_topic(side: Side) -> None:
    topic = side.topic(configs={"cleanup.policy": "compact"})
    asked = DeleteRecordsPartition(partition_index=0, offset=0)
    topics = [DeleteRecordsTopic(name=topic, partitions=[asked])]
    side.compare(DeleteRecordsRequest(topics=topics, timeout_ms=2000))

"""Reading records through aiokafka and printing them, until there are enough, an end is reached, or Ctrl-C."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from pqbroker.broker.cli.consume import Format
from pqbroker.broker.cli.output import progress, write
from pqbroker.broker.cli.records import refusal
from pqbroker.broker.cli.watch import GONE_TIMEOUT_S, Watch

POLL_MS = 200
POLL_RECORDS_MAX = 1000


class Reading(NamedTuple):
    """What is to be read; `ends` are the offsets to stop at, None to go on for ever."""

    broker: str
    topic: str
    limit: int | None
    ends: Mapping[int, int] | None
    form: Format


def read_partitions(reading: Reading, starts: Mapping[int, int]) -> None:
    """Print records from the offsets on."""

    async def read(watch: Watch) -> None:
        async with _consumer(reading, None, "none") as consumer:
            consumer.assign([TopicPartition(reading.topic, index) for index in starts])
            for index, offset in starts.items():
                consumer.seek(TopicPartition(reading.topic, index), offset)
            await _print_records(reading, consumer, watch)

    _run(reading, read)


def read_group(reading: Reading, group: str, start: str) -> None:
    """Print records as a member of a group; what was printed is committed."""

    async def read(watch: Watch) -> None:
        async with _consumer(reading, group, start) as consumer:
            joined = _Joined()
            consumer.subscribe([reading.topic], listener=joined)
            await _print_records(reading, consumer, watch, joined)

    _run(reading, read)


class _Joined(ConsumerRebalanceListener):  # type: ignore[misc]
    """Whether the group has said which partitions are ours; there may be none for us."""

    def __init__(self) -> None:
        self.has = False

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.has = True

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.has = False


def _run(reading: Reading, read: Callable[[Watch], Coroutine[Any, Any, None]]) -> None:
    """Run until it is done; Ctrl-C and SIGTERM end it as the end of the topic would, with all that is printed.

    Who follows waits for a broker that has gone as long as for a record.
    """
    watch = Watch(reading.broker, None if reading.ends is None else GONE_TIMEOUT_S)

    async def run() -> None:
        task = asyncio.ensure_future(watch.over(read(watch)))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    asyncio.run(run())


@asynccontextmanager
async def _consumer(reading: Reading, group: str | None, start: str) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=reading.broker,
        client_id="pqbroker-cli",
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset=start,
    )
    try:
        try:
            await consumer.start()
            yield consumer
        finally:
            await consumer.stop()
    except KafkaError as error:
        raise refusal(error, f"cannot read {reading.topic}") from None


async def _print_records(reading: Reading, consumer: Any, watch: Watch, joined: _Joined | None = None) -> None:
    """Print until it is done; a member of a group commits what is printed."""
    printed = 0
    with progress() as shown:
        task = shown.add_task(f"records of {reading.topic}", total=reading.limit)
        while not await _is_done(reading, consumer, printed, joined):
            left = POLL_RECORDS_MAX if reading.limit is None else min(POLL_RECORDS_MAX, reading.limit - printed)
            found = await consumer.getmany(timeout_ms=POLL_MS, max_records=left)
            wanted = [record for records in found.values() for record in records]
            _print(reading.form, wanted)
            if wanted:
                watch.moved()
            printed += len(wanted)
            shown.advance(task, len(wanted))
            if found and joined is not None:
                await consumer.commit()


async def _is_done(reading: Reading, consumer: Any, printed: int, joined: _Joined | None) -> bool:
    if reading.limit is not None and printed >= reading.limit:
        return True
    if reading.ends is None or (joined is not None and not joined.has):
        return False
    for partition in consumer.assignment():
        if await consumer.position(partition) < reading.ends.get(partition.partition, 0):
            return False
    return True


def _print(form: Format, records: Sequence[ConsumerRecord]) -> None:
    write(b"".join(_line(form, record) + b"\n" for record in records))


def _line(form: Format, record: ConsumerRecord) -> bytes:
    if form is Format.VALUE:
        return record.value or b""
    if form is Format.KEY:
        return record.key or b""
    return json.dumps(as_json(record), ensure_ascii=False).encode()


def as_json(record: ConsumerRecord) -> dict[str, object]:
    """A record with stable keys; bytes that are not UTF-8 show as \\xNN in the text."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")

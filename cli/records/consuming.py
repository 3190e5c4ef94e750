"""Reading records through aiokafka and printing them, until there are enough, an end is reached, or Ctrl-C."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any, NamedTuple

from aiokafka import ConsumerRebalanceListener
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError

from pqbroker.cli.connection_security import client_options
from pqbroker.cli.kafka.cluster import TopicPartition
from pqbroker.cli.kafka.isolation import ReadIsolation
from pqbroker.cli.kafka.unserved import Unserved
from pqbroker.cli.kafka.watch import GONE_TIMEOUT_S, Watch
from pqbroker.cli.output import write
from pqbroker.cli.progress import Progress, prints_to_file
from pqbroker.cli.records.client import refusal
from pqbroker.cli.records.paced_consumer import PacedConsumer
from pqbroker.cli.records.selection import PrintOptions, Selection
from pqbroker.cli.refusals import CommandError, words
from pqbroker.protocol.errors import ErrorCode

POLL_MS = 200
POLL_RECORDS_MAX = 1000
_NAMED_MAX = 20

STALL_S = 30.0
"""Time without a record after which a reader that is to end gives up: nobody serves what it waits for."""


class Reading(NamedTuple):
    """The records to read; `ends` are the offsets to stop at, or, where it follows, the ends of what exists."""

    brokers: str
    topics: list[str]
    ends: Mapping[TopicPartition, int]
    follow: bool
    wanted: PrintOptions
    isolation: ReadIsolation


def read_partitions(reading: Reading, starts: Mapping[TopicPartition, int]) -> None:
    """Print records from the offsets on."""

    wanted = {
        partition: offset
        for partition, offset in starts.items()
        if reading.follow or offset < reading.ends[partition]
    }
    if not wanted:
        return

    async def read(watch: Watch) -> None:
        async with _consumer(reading, None, "none") as consumer:
            consumer.assign([AioPartition(*partition) for partition in wanted])
            for partition, offset in wanted.items():
                consumer.seek(AioPartition(*partition), offset)
            await _print_records(reading, consumer, watch)

    _run(reading, read)


def read_group(reading: Reading, group: str, start: str) -> None:
    """Print records as a member of a group; what was read is committed."""

    async def read(watch: Watch) -> None:
        async with _consumer(reading, group, start) as consumer:
            joined = _Joined()
            consumer.subscribe(reading.topics, listener=joined)
            await _print_records(reading, consumer, watch, joined)

    _run(reading, read)


class _Joined(ConsumerRebalanceListener):  # type: ignore[misc]
    """A note that the group has said which partitions are ours; there may be none for us."""

    def __init__(self) -> None:
        self.has = False

    def on_partitions_assigned(self, assigned: Collection[AioPartition]) -> None:
        self.has = True

    def on_partitions_revoked(self, revoked: Collection[AioPartition]) -> None:
        self.has = False


def _run(reading: Reading, read: Callable[[Watch], Coroutine[Any, Any, None]]) -> None:
    """Run until it is done; Ctrl-C and SIGTERM end it as the end of the topic would, with all that is printed.

    A reader that follows waits for a broker that has gone as long as for a record.
    """
    watch = Watch(reading.brokers, None if reading.follow else GONE_TIMEOUT_S)

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
    consumer = PacedConsumer(
        bootstrap_servers=reading.brokers,
        client_id="pqbroker-cli",
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset=start,
        isolation_level=str(reading.isolation),
        **client_options(),
    )
    try:
        try:
            await consumer.start()
            yield consumer
        finally:
            await consumer.stop()
    except KafkaError as error:
        raise refusal(error, f"cannot read {', '.join(reading.topics)}") from None


async def _print_records(reading: Reading, consumer: Any, watch: Watch, joined: _Joined | None = None) -> None:
    """Print until it is done; a member of a group commits what it has read, which is never more than it may print."""
    selection = Selection(reading.wanted)
    holding = reading.wanted.last is not None
    loop = asyncio.get_running_loop()
    moved_s = loop.time()
    shown = Progress("records read", None, shown=prints_to_file())
    with closing(Unserved(reading.brokers, reading.ends)) as unserved, shown:
        while not selection.is_full:
            at_ends = (holding or not reading.follow) and await _is_at_ends(reading, consumer, joined)
            if at_ends:
                write(selection.release())
                holding = False
            if at_ends and not reading.follow:
                return
            room = POLL_RECORDS_MAX if joined is None else min(POLL_RECORDS_MAX, selection.left or POLL_RECORDS_MAX)
            found = await consumer.getmany(timeout_ms=POLL_MS, max_records=room)
            records = [record for each in found.values() for record in each]
            take = partial(selection.take, _within(reading, records, joined), holding=holding)
            write(take() if reading.wanted.decoder is None else await asyncio.to_thread(take))  # it asks a registry
            shown.advance(len(records))
            moved_s = loop.time() if records else moved_s
            if not reading.follow and joined is None and loop.time() - moved_s > STALL_S:
                raise CommandError(_stalled(reading, consumer))
            await _note(consumer, watch, records, joined)
            unserved.note(
                ((each.topic, each.partition) for each in consumer.assignment()),
                {(each.topic, each.partition): each.offset + 1 for each in records},
            )


def _stalled(reading: Reading, consumer: Any) -> str:
    partitions = sorted((each.topic, each.partition) for each in consumer.assignment())
    named = ", ".join(f"{topic}-{index}" for topic, index in partitions[:_NAMED_MAX])
    return f"no record of {named} came within {STALL_S:g} s: {words(ErrorCode.NOT_LEADER_OR_FOLLOWER)}"


def _within(reading: Reading, records: list[Any], joined: _Joined | None) -> list[Any]:
    """Return the records before the ends; a member of a group prints all, for it commits all."""
    if joined is not None or reading.follow:
        return records
    return [each for each in records if each.offset < reading.ends[each.topic, each.partition]]


async def _note(consumer: Any, watch: Watch, records: list[Any], joined: _Joined | None) -> None:
    if records:
        watch.moved()
        if joined is not None:
            await consumer.commit()


async def _is_at_ends(reading: Reading, consumer: Any, joined: _Joined | None) -> bool:
    if joined is not None and not joined.has:
        return False
    for partition in consumer.assignment():
        if await consumer.position(partition) < reading.ends.get((partition.topic, partition.partition), 0):
            return False
    return True

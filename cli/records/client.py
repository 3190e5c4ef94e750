"""aiokafka as the commands use it: its producer, what can be chosen of it, and its errors in words."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from typing import Any

from pqbroker.cli.connection_security import client_options
from pqbroker.cli.refusals import CommandError, words
from pqbroker.protocol.errors import ErrorCode

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # the watch over the broker says it in our words
_SENDER_LOG = logging.getLogger("aiokafka.producer.sender")

REQUEST_BYTES_MAX = 128 << 20
"""Bytes above which a client refuses a request itself; below it the broker's own limit decides."""

INTERRUPTED_STOP_S = 2.0
"""Time for what is on its way after Ctrl-C, or when it is given up: a broker that has gone would never have it."""
UNANSWERED_S = 30.0
"""Time without an acknowledgement after which a writer gives up: nobody serves what it waits for."""


class RetriedRefusal(logging.Filter):
    """The last refusal of a batch that aiokafka sends again: it tells its log alone. Nothing of it is written."""

    def __init__(self) -> None:
        super().__init__()
        self._last: object = None

    def filter(self, record: logging.LogRecord) -> bool:
        if "retrying" in str(record.msg) and isinstance(record.args, tuple) and record.args:
            self._last = record.args[-1]
        return False

    @property
    def words(self) -> str:
        """Return the broker's reason, or its error in words; of a partition that nobody leads, if there was none."""
        if isinstance(self._last, str):
            return self._last
        code = getattr(self._last, "errno", None)
        return words(ErrorCode(code) if isinstance(code, int) and code > 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER)


@contextmanager
def retried_refusal() -> Iterator[RetriedRefusal]:
    """Note refusals that aiokafka's producer meets with another try, as long as this lasts."""
    noted = RetriedRefusal()
    level = _SENDER_LOG.level
    _SENDER_LOG.setLevel(logging.WARNING)
    _SENDER_LOG.addFilter(noted)
    try:
        yield noted
    finally:
        _SENDER_LOG.removeFilter(noted)
        _SENDER_LOG.setLevel(level)


class Compression(StrEnum):
    """Codecs of record batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """The brokers that must have a record before it counts as written."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


@asynccontextmanager
async def producer(
    broker: str, compression: Compression, acks: Acks, linger_ms: int, batch_bytes: int
) -> AsyncIterator[Any]:
    """A producer, idempotent where every record is acknowledged by all; flushed at the end."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    from pqbroker.cli.records.paced_consumer import PacedCall

    _name_errors()
    client = AIOKafkaProducer(
        bootstrap_servers=broker,
        client_id="pqbroker-cli",
        acks="all" if acks is Acks.ALL else int(acks),
        enable_idempotence=acks is Acks.ALL,
        compression_type=None if compression is Compression.NONE else compression.value,
        linger_ms=linger_ms,
        max_batch_size=batch_bytes,
        max_request_size=REQUEST_BYTES_MAX,
        **client_options(),
    )
    client.client.force_metadata_update = PacedCall(client.client.force_metadata_update)
    try:
        try:
            await _started(client, broker)
            yield client
        except (asyncio.CancelledError, CommandError):
            # Left to the end of the loop, which ends all of its tasks: cancelled here, it would leave one of its own.
            _, waiting = await asyncio.wait([asyncio.ensure_future(client.stop())], timeout=INTERRUPTED_STOP_S)
            if waiting:
                await client.client.close()  # its connections, which it closes last
            raise
        finally:
            await client.stop()
    except KafkaError as error:
        raise refusal(error, f"the broker at {broker} does not go along") from None


async def _started(client: Any, broker: str) -> None:
    """Start a producer. CommandError where the broker gives it no id in time: aiokafka would ask for ever."""
    starting = asyncio.ensure_future(client.start())
    try:
        await asyncio.wait([starting], timeout=UNANSWERED_S)
        if not starting.done():
            raise CommandError(
                f"the broker at {broker} gave this producer no id within {UNANSWERED_S:g} s, so nothing was written; "
                "its disk may be full or stalled: `pqbroker cluster health` shows the cause and the cure"
            )
    finally:
        starting.cancel()
    await starting


def _name_errors() -> None:
    """Have aiokafka know every error code: what it does not know it tells as UnknownError."""
    from aiokafka import errors

    for code in ErrorCode:
        if code > ErrorCode.NONE and code not in errors.kafka_errors:
            errors.kafka_errors[int(code)] = type(code.name, (errors.BrokerResponseError,), {"errno": int(code)})


def refusal(error: BaseException, what: str) -> CommandError:
    """An error of aiokafka in the user's words."""
    code = getattr(error, "errno", None)
    said = next((str(each) for each in error.args if isinstance(each, str) and each), "")
    if isinstance(code, int) and code > 0:
        return CommandError(f"{what}: {words(ErrorCode(code))}")
    return CommandError(f"{what}: {said or type(error).__name__}")

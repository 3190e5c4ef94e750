"""The end of a relay that Spark's Python workers run: rows to records, in order, with key, timestamp and headers.

Spark's own sink has no timestamps. One idempotent producer for each task of Spark's: a lost answer repeats no record.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner

from pqbroker.pipeline.connection_security import client_settings, worker_options
from pqbroker.pipeline.relays.journal import held

_BATCH_BYTES = 256 << 10
_BATCHES_WAITING_MAX = 32
_ANSWER_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 5.0
_PACED_RECORDS = 100
"""Records written at once where the rate is limited, at most; at low rates fewer."""


class Pace:
    """The waits that keep records to a rate; `now` in seconds, of any clock."""

    def __init__(self, records_per_s: float, now: float) -> None:
        self._records_per_s = records_per_s
        self._free_at = now

    def wait_s(self, records: int, now: float) -> float:
        """Return how long to wait before `records` more records. What was not used is not saved up."""
        begin = max(self._free_at, now)
        self._free_at = begin + records / self._records_per_s
        return begin - now


@dataclass(frozen=True, slots=True)
class Sender:
    """Writes the rows of a task; goes to the workers by pickle. Rows are those of `rows.py`."""

    broker: str
    topic: str
    partition_count: int
    lock: Path
    records_per_s: float | None = None
    security: Mapping[str, str] = field(default_factory=client_settings, repr=False)

    def __call__(self, rows: Iterator[Any]) -> None:
        with held(self.lock, alone=False):
            asyncio.run(self._send(rows))

    async def _send(self, rows: Iterator[Any]) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.broker, client_id="pqbroker-pipeline", acks="all", enable_idempotence=True,
            compression_type="zstd", max_batch_size=_BATCH_BYTES, max_request_size=2**31 - 1,
            **worker_options(self.security),
        )  # fmt: skip
        await producer.start()
        try:
            await self._send_all(producer, rows)
        finally:
            with suppress(TimeoutError):  # after a failure: what was not answered is looked for in the topic
                await asyncio.wait_for(producer.stop(), _STOP_TIMEOUT_S)

    async def _send_all(self, producer: AIOKafkaProducer, rows: Iterator[Any]) -> None:
        pace = None if self.records_per_s is None else Pace(self.records_per_s, time.monotonic())
        step = max(1, min(_PACED_RECORDS, int((self.records_per_s or 0.0) / 10)))
        open_batches: dict[int, Any] = {}
        waiting: deque[Any] = deque()
        for number, row in enumerate(rows):
            if pace is not None and number % step == 0:
                await self._flush(producer, open_batches, waiting)
                await asyncio.sleep(pace.wait_s(step, time.monotonic()))
            partition = self._partition(row)
            batch = open_batches.get(partition)
            if batch is None or not _append(batch, row):
                if batch is not None:
                    await self._submit(producer, batch, partition, waiting)
                batch = open_batches[partition] = producer.create_batch()
                assert _append(batch, row), "an empty batch takes any record"
        await self._flush(producer, open_batches, waiting)
        while waiting:
            await asyncio.wait_for(waiting.popleft(), _ANSWER_TIMEOUT_S)

    async def _flush(self, producer: AIOKafkaProducer, batches: dict[int, Any], waiting: deque[Any]) -> None:
        for partition in list(batches):
            await self._submit(producer, batches.pop(partition), partition, waiting)

    async def _submit(self, producer: AIOKafkaProducer, batch: Any, partition: int, waiting: deque[Any]) -> None:
        batch.close()
        waiting.append(await producer.send_batch(batch, self.topic, partition=partition))
        while len(waiting) > _BATCHES_WAITING_MAX:
            await asyncio.wait_for(waiting.popleft(), _ANSWER_TIMEOUT_S)

    def _partition(self, row: Any) -> int:
        """The row's own, else by its key as every Kafka client does it."""
        if row["partition"] is not None:
            return int(row["partition"]) % self.partition_count
        everyone = range(self.partition_count)
        return int(DefaultPartitioner()(None if row["key"] is None else bytes(row["key"]), everyone, everyone))


def _append(batch: Any, row: Any) -> bool:
    headers = [(header["key"], _content(header["value"])) for header in row["headers"] or ()]
    timestamp, key, value = row["timestamp_ms"], _content(row["key"]), _content(row["value"])
    return batch.append(timestamp=timestamp, key=key, value=value, headers=headers) is not None


def _content(data: Any) -> bytes | None:
    return None if data is None else bytes(data)

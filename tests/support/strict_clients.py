"""Clients of a topic that note every error that reaches their program: none of them is tried again by the test."""

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Producer

PATIENCE_S = 90.0
SESSION_MS = 30_000
LOOK_S = 0.05
ABORTED_EVERY = 4
"""Number of transactions of which the last one is aborted."""
PRODUCERS = ("idempotent", "transactional", "aiokafka-idempotent")
MEMBERS = ("librdkafka", "aiokafka")
Settings = dict[str, str | int | float | bool]
Loop = Callable[[], None]


class StrictClients:
    """Producers of numbers, one for each library and kind, and members of groups that commit what they have read.

    Each producer writes its own keys, to all partitions in turn. `errors` has what a library could not do."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        self._address = address
        self._topic = topic
        self._partitions = partitions
        self._stopping = threading.Event()
        self.errors: list[str] = []
        self.written: Counter[str] = Counter()
        """Records that are acknowledged, or committed, by producer."""
        self.committed: Counter[str] = Counter()
        """Commits of offsets, by member."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all clients until the block ends."""
        loops = (
            self._produce, self._produce_in_transactions, lambda: asyncio.run(self._produce_by_aiokafka()),
            lambda: self._consume("librdkafka"), lambda: asyncio.run(self._consume_by_aiokafka("aiokafka")),
        )  # fmt: skip
        threads = [threading.Thread(target=self._noting, args=(loop,), daemon=True) for loop in loops]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads), "a client does not end"

    @property
    def names(self) -> tuple[str, ...]:
        return PRODUCERS + MEMBERS

    def steps(self) -> Counter[str]:
        """Return how far each client is."""
        return self.written + self.committed

    def _noting(self, loop: Loop) -> None:
        """Run a client; what ends it is an error."""
        try:
            loop()
        except (KafkaException, AiokafkaError) as error:
            self.errors.append(repr(error))

    def _producer(self, name: str) -> Settings:
        return {"bootstrap.servers": self._address, "log_level": 0, "linger.ms": 2, "client.id": name}

    def _produce(self) -> None:
        producer = Producer({**self._producer("idempotent"), "enable.idempotence": True})

        def take(error: object, _: object) -> None:
            if error is None:
                self.written["idempotent"] += 1
            else:
                self.errors.append(f"idempotent: {error}")

        for number in self._numbers():
            producer.produce(
                self._topic, str(number), "idempotent", partition=number % self._partitions, on_delivery=take
            )
            producer.poll(0.002)
        assert producer.flush(PATIENCE_S) == 0

    def _produce_in_transactions(self) -> None:
        name = "transactional"
        producer = Producer({**self._producer(name), "transactional.id": name})
        producer.init_transactions(PATIENCE_S)
        for turn, number in enumerate(self._numbers()):
            is_aborted = turn % ABORTED_EVERY == 0
            producer.begin_transaction()
            for partition in range(self._partitions):
                producer.produce(self._topic, str(number), f"{'un' if is_aborted else ''}{name}", partition=partition)
            if is_aborted:
                producer.abort_transaction(PATIENCE_S)
                continue
            producer.commit_transaction(PATIENCE_S)
            self.written[name] += self._partitions

    async def _produce_by_aiokafka(self) -> None:
        name = "aiokafka-idempotent"
        async with AIOKafkaProducer(
            bootstrap_servers=self._address, enable_idempotence=True, client_id=name, request_timeout_ms=40_000
        ) as producer:
            for number in self._numbers():
                await producer.send_and_wait(
                    self._topic, str(number).encode(), name.encode(), number % self._partitions
                )
                self.written[name] += 1

    def _consume(self, group: str) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0,
                "enable.auto.commit": False, "session.timeout.ms": SESSION_MS,
            }
        )  # fmt: skip
        consumer.subscribe([self._topic])
        while not self._stopping.is_set():
            messages = consumer.consume(200, LOOK_S)
            self.errors += [f"{group}: {error}" for message in messages if (error := message.error()) is not None]
            if messages:
                consumer.commit(asynchronous=False)
                self.committed[group] += 1
        consumer.close()

    async def _consume_by_aiokafka(self, group: str) -> None:
        async with AIOKafkaConsumer(
            self._topic, bootstrap_servers=self._address, group_id=group, auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=SESSION_MS, heartbeat_interval_ms=1000,
        ) as consumer:
            while not self._stopping.is_set():
                if await consumer.getmany(timeout_ms=100, max_records=200):
                    await consumer.commit()
                    self.committed[group] += 1

    def _numbers(self) -> Iterator[int]:
        return itertools.takewhile(lambda _: not self._stopping.is_set(), itertools.count())

"""An idempotent producer of one partition, as Kafka's clients are: five batches in flight, sent again until answered.

It may lose an answer, lose patience, and send what was acknowledged long ago once more.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pqbroker.pq.log.producers import BATCHES_KEPT
from pqbroker.pq.log.write_cycle import Written
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.outcome import Outcome
from tests.pq.rig import batch
from tests.simulation.ledger import Value, expect
from tests.simulation.world import TABLE, World

IN_FLIGHT = 5
PATIENCE_S = 1.5
BACK_OFF_S = 0.3
LOSES_ANSWER = 0.1
REPEATS_OLD = 0.1
SIZES = (0, 10, 30, 200, 900, 1500, 2500, 6000)
OLD_KEPT = 8
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
}
UNMOUNTED = {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.POLICY_VIOLATION}
"""What a table's tablets say besides."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch: its values, and how large they are beyond what they say."""

    values: Sequence[Value]
    size: int

    @property
    def sequence(self) -> int:
        return self.values[0].number


class SimulatedProducer:
    """Writes until the world ends, then until everything sent is acknowledged."""

    def __init__(self, world: World, topic_id: bytes, index: int) -> None:
        self._world = world
        self._chance = world.chance(f"producer {topic_id.hex()} {index}")
        self._topic = world.topics[topic_id]
        self._index = index
        self._book = self._topic.partition(index)
        self._waiting: deque[Sent] = deque()
        """Batches without an acknowledgement, in order."""
        self._old: deque[tuple[Sent, int]] = deque(maxlen=OLD_KEPT)
        """Batches that were acknowledged, and where."""
        self._next = 0
        self._id = -1

    async def run(self) -> None:
        self._world.writing += 1
        self._id = await self._world.producer_id()
        while (not self._world.is_ending or self._waiting) and not (self._topic.gone or self._book.gone):
            await asyncio.sleep(self._chance.expovariate(4) if not self._world.is_ending else 0.01)
            server = self._world.node.partition(self._topic.topic_id, self._index)
            if server is None or self._book.gone:
                await asyncio.sleep(BACK_OFF_S)
                continue
            if self._old and self._chance.random() < REPEATS_OLD:
                await self._repeat(server, *self._chance.choice(self._old))
            self._fill()
            if not await self._send(server):
                await asyncio.sleep(BACK_OFF_S * self._chance.random())
        self._world.writing -= 1

    def _fill(self) -> None:
        if self._world.is_ending:
            return
        for _ in range(self._chance.randint(0 if self._waiting else 1, IN_FLIGHT - len(self._waiting))):
            count = self._chance.choice((1, 1, 2, 5))
            values = [Value(self._id, self._next + number) for number in range(count)]
            self._next += count
            self._waiting.append(Sent(values, self._chance.choice(SIZES)))

    async def _send(self, server: PartitionServer) -> bool:
        """Send all that waits, in order, and take the answers in order up to the first failure; False after one."""
        answers: list[asyncio.Future[Written]] = []
        for one in list(self._waiting):
            if self._topic.name == TABLE and any(answer.done() and answer.exception() for answer in answers):
                break  # its tablet may be mounted by now: it would take this one first, as Kafka does
            self._book.sent(one.values)
            answers.append(self._write(server, one))
            if self._chance.random() < 0.3:
                await asyncio.sleep(self._chance.random() * 0.02)
        _, late = await asyncio.wait(answers, timeout=PATIENCE_S) if answers else (set(), set())
        for position, answer in enumerate(answers):
            if answer in late:
                self._world.note(f"{self._book.name} producer {self._id} lost patience")
                return False
            try:
                written = answer.result()
            except KafkaError as error:
                self._check_refusal(error, position)
                return False
            if not self._take(written):
                return False
        return True

    def _take(self, written: Written) -> bool:
        """The answer for the first batch that waits; it may get lost on its way."""
        one = self._waiting[0]
        expect(written.base_offset >= 0, f"{self._book.name}: {one} was acknowledged without an offset")
        self._book.acknowledge(written.base_offset, one.values)
        if self._chance.random() < LOSES_ANSWER:
            return False
        self._waiting.popleft()
        self._old.append((one, written.base_offset))
        self._world.note(f"{self._book.name} {one.values[0]}+{len(one.values)} at {written.base_offset}")
        return True

    async def _repeat(self, server: PartitionServer, one: Sent, offset: int) -> None:
        """What was acknowledged is never stored again: it is a duplicate, or older than what is remembered."""
        try:
            written = await self._write(server, one)
        except KafkaError as error:
            is_older = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_older(one)
            self._check_refusal(error, int(is_older))
            return
        expect(written.base_offset == offset, f"{self._book.name}: {one} was at {offset}, it is at {written}")

    def _is_older(self, one: Sent) -> bool:
        """Return True if as many batches as are remembered may have been stored behind this one."""
        behind = [old for old, _ in self._old if old.sequence > one.sequence]
        return len(behind) + len(self._waiting) >= BATCHES_KEPT

    def _check_refusal(self, error: KafkaError, position: int) -> None:
        """A sequence is out of order only behind one that failed."""
        out_of_order = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and position > 0
        codes = RETRIABLE | UNMOUNTED if self._topic.name == TABLE else RETRIABLE
        expect(error.code in codes or out_of_order, f"{self._book.name} refuses producer {self._id}: {error!r}")
        self._world.note(f"{self._book.name} producer {self._id}: {error.code.name}")

    def _write(self, server: PartitionServer, one: Sent) -> "asyncio.Future[Written]":
        texts = [value.text(one.size) for value in one.values]
        stamps = [self._world.node.clock()] * len(texts)
        view, header = batch(*texts, timestamps=stamps, producer=(self._id, 0, one.sequence))
        answer: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        server.write(view, header).add_done_callback(partial(_tell, answer))
        return answer


def _tell(answer: "asyncio.Future[Written]", written: Outcome[Written]) -> None:
    """Whoever lost patience does not look any more."""
    error = written.exception()
    if error is None:
        answer.set_result(written.result())
    else:
        answer.set_exception(error)
        answer.exception()

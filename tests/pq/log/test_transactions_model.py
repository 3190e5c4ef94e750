"""A partition under random transactions of Kafka producers, failures, restarts and trims, against a list of records.

What a consumer of committed records makes of it, which reads as Kafka's does, is compared with the model.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.log.producer_transactions import AbortedBatches
from pqbroker.pq.reading.query import READ_COMMITTED, ReadQuery, visible_end
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import KafkaError
from pqbroker.protocol.records import BatchHeader, batches, decode_records
from tests.pq.rig import DAY_MS, MIB, Node, batch, check_invariants, check_store, transactional
from tests.support.depth import examples

pytestmark = pytest.mark.spec("4.25", "4.40")

T = TypeVar("T")
PRODUCERS = (5, 6, 7)
FAILURES = ("refused", "lost", "kept")


class Stored(NamedTuple):
    """One offset of the log; a marker has no value."""

    value: bytes | None
    producer: int | None = None
    """Id of the producer of a transactional batch; None: the batch is of no transaction."""


@dataclass
class Model:
    log: list[Stored] = field(default_factory=list)
    start: int = 0
    open: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    """Offsets."""

    @property
    def stable(self) -> int:
        return max(min(self.open.values(), default=len(self.log)), self.start)

    def end(self, producer: int, epoch: int, *, is_commit: bool) -> None:
        first = self.open.pop(producer, None)
        if first is not None and not is_commit:
            self.aborted |= {
                offset for offset in range(first, len(self.log)) if self.log[offset].producer == producer
            }
        if self.epochs.get(producer) != epoch:
            self.epochs[producer], self.sequences[producer] = epoch, 0
        self.log.append(Stored(None))

    def committed(self, offset: int) -> list[tuple[int, bytes]]:
        found = enumerate(self.log[: self.stable])
        return [
            (at, each.value) for at, each in found
            if at >= offset and each.value is not None and at not in self.aborted
        ]  # fmt: skip


class TransactionsMachine(RuleBasedStateMachine):
    @initialize(low_watermark=st.sampled_from([20_000, MIB]), cache_bytes=st.sampled_from([0, MIB]))
    def begin(self, low_watermark: int, cache_bytes: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.model = Model()
        self.serial = 0
        self.node = Node(cache_bytes=cache_bytes)
        self.run(self.node.start())
        config = {"pq.low.watermark.bytes": str(low_watermark), "retention.ms": str(3 * DAY_MS)}
        self.run(self.node.topic(config=config))
        self.steps = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def server(self) -> PartitionServer:
        return self.node.partition()

    def values(self, size: int, count: int) -> list[bytes]:
        self.serial += 1
        return [b"%d.%d " % (self.serial, number) + bytes(size // count) for number in range(count)]

    @rule(producer=st.sampled_from(PRODUCERS), size=st.sampled_from([0, 900, 9000]), count=st.integers(1, 3))
    def writes_in_a_transaction(self, producer: int, size: int, count: int) -> None:
        values, model = self.values(size, count), self.model
        epoch = model.epochs.setdefault(producer, 0)
        sequence = model.sequences.get(producer, 0)
        self.run(self.write(transactional(*values, producer=(producer, epoch, sequence))))
        model.open.setdefault(producer, len(model.log))
        model.sequences[producer] = sequence + count
        model.log += [Stored(value, producer) for value in values]

    @rule(size=st.sampled_from([0, 900, 40_000]), count=st.integers(1, 3))
    def writes_without(self, size: int, count: int) -> None:
        values = self.values(size, count)
        self.run(self.write(batch(*values)))
        self.model.log += [Stored(value) for value in values]

    async def write(self, one: tuple[memoryview, BatchHeader]) -> None:
        await self.server.write(*one)

    @rule(producer=st.sampled_from(PRODUCERS), is_commit=st.booleans(), bump=st.integers(0, 1))
    def ends(self, producer: int, is_commit: bool, bump: int) -> None:
        epoch = self.model.epochs.get(producer, 0) + bump
        offset = self.run(self.end(producer, epoch, is_commit=is_commit))
        assert offset == len(self.model.log)
        self.model.end(producer, epoch, is_commit=is_commit)

    async def end(self, producer: int, epoch: int, *, is_commit: bool) -> int:
        return await self.server.end_transaction(producer, epoch, 0, is_commit=is_commit)

    @rule(producer=st.sampled_from(PRODUCERS), is_commit=st.booleans(), how=st.sampled_from(FAILURES))
    def ends_in_vain(self, producer: int, is_commit: bool, how: str) -> None:
        """A refused marker changes nothing; one with which the cell is lost is stored or not."""
        epoch, faults = self.model.epochs.get(producer, 0), self.node.engine.faults
        if how == "refused":
            faults.refuse_next()
        else:
            faults.lose_next(stored=how == "kept")
        with pytest.raises(KafkaError):
            self.run(self.end(producer, epoch, is_commit=is_commit))
        if how != "refused":
            self.run(self.node.restart())
        if how == "kept":
            self.model.end(producer, epoch, is_commit=is_commit)

    @rule(producer=st.sampled_from(PRODUCERS), how=st.sampled_from(FAILURES))
    def writes_in_vain(self, producer: int, how: str) -> None:
        (value,), model, faults = self.values(0, 1), self.model, self.node.engine.faults
        epoch, sequence = model.epochs.setdefault(producer, 0), model.sequences.get(producer, 0)
        if how == "refused":
            faults.refuse_next()
        else:
            faults.lose_next(stored=how == "kept")
        with pytest.raises(KafkaError):
            self.run(self.write(transactional(value, producer=(producer, epoch, sequence))))
        if how != "refused":
            self.run(self.node.restart())
        if how == "kept":
            model.open.setdefault(producer, len(model.log))
            model.sequences[producer] = sequence + 1
            model.log.append(Stored(value, producer))

    @rule(producer=st.sampled_from(PRODUCERS))
    def an_older_epoch_is_refused(self, producer: int) -> None:
        if self.model.epochs.get(producer, 0):
            with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
                self.run(self.end(producer, self.model.epochs[producer] - 1, is_commit=True))

    @rule()
    def restarts(self) -> None:
        self.run(self.node.restart())

    @rule()
    def closes_the_head(self) -> None:
        async def flush() -> None:
            await self.server.flush()

        self.run(flush())

    @rule(part=st.integers(0, 10))
    def trims(self, part: int) -> None:
        offset = self.model.start + (len(self.model.log) - self.model.start) * part // 10
        self.run(self.server.retention.delete_before(offset))
        self.model.start = offset

    @rule(days=st.integers(0, 5))
    def time_passes(self, days: int) -> None:
        self.node.now_ms += days * DAY_MS
        self.run(self.node.topics.retain(nobody_knows))
        self.model.start = self.server.start_offset
        known = self.server.state.producers.producers
        assert set(self.model.open) <= set(known)
        for producer in PRODUCERS:
            if producer not in known:
                self.model.epochs.pop(producer, None)
                self.model.sequences.pop(producer, None)

    @rule(is_commit=st.booleans())
    def ends_all(self, is_commit: bool) -> None:
        for producer in list(self.model.open):
            self.ends(producer, is_commit, 0)

    @rule(bytes_max=st.sampled_from([1, 3000, 100_000]), part=st.integers(0, 9))
    def is_consumed(self, bytes_max: int, part: int) -> None:
        offset = self.model.start + (self.model.stable - self.model.start) * part // 10
        assert self.run(self.consume(offset, bytes_max)) == self.model.committed(offset)

    async def consume(self, offset: int, bytes_max: int) -> list[tuple[int, bytes | None]]:
        """Return the records that a consumer of Kafka's takes: it drops those of aborted transactions."""
        found: list[tuple[int, bytes | None]] = []
        begin = offset
        while offset < (end := visible_end(self.server.state, READ_COMMITTED)):
            answer = self.server.read(ReadQuery(offset, end, bytes_max))
            read = answer if isinstance(answer, Batches) else await answer
            spans = self.server.state.transactions.aborted
            told = [] if spans is None else spans.between(offset, read.next_offset)
            assert [span.first_offset for span in told] == sorted(span.first_offset for span in told)
            found += self.filtered(b"".join(read.in_memory()), [span[:3] for span in told])
            offset = read.next_offset
        return [(at, value) for at, value in found if at >= begin]

    def filtered(self, data: bytes, told: list[tuple[int, int, int]]) -> list[tuple[int, bytes | None]]:
        """Return the committed records by Kafka's algorithm; `AbortedBatches` has to agree."""
        ours = AbortedBatches(told)
        waiting, aborted = list(told), set()
        found: list[tuple[int, bytes | None]] = []
        for position, header in batches(data):
            while waiting and waiting[0][2] <= header.last_offset:
                aborted.add(waiting.pop(0)[1])
            records = list(decode_records(data[position : position + header.size_bytes]))
            if header.is_control:
                if records[0].key == bytes(4):
                    aborted.discard(header.producer_id)
                continue
            assert ours.has(header) == (header.is_transactional and header.producer_id in aborted)
            if not ours.has(header):
                found += [(record.offset, record.value) for record in records]
        return found

    @invariant()
    def the_state_is_sound(self) -> None:
        if not hasattr(self, "node"):
            return
        server, model = self.server, self.model
        assert (server.start_offset, server.end_offset) == (model.start, len(model.log))
        assert server.state.transactions.open == model.open
        assert visible_end(server.state, READ_COMMITTED) == model.stable
        check_invariants(server.state)
        self.run(check_store(self.node, server))
        self.steps += 1
        self.is_consumed((1, 3000, 100_000)[self.steps % 3], self.steps % 7)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.node.stop())
            self.loop.close()


TransactionsMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTransactions = TransactionsMachine.TestCase

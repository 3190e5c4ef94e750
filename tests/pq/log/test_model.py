"""A partition under random writes, producers, failures, crashes, deletions and reads, against a list of records.

After each step the invariants of A.2 and K.1 hold, and the store has exactly the blobs that the partition knows.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pqbroker.pq.log.levels import HEAD_BLOB_BYTES_MAX
from pqbroker.pq.log.write_cycle import Written
from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from tests.pq.rig import (
    DAY_MS,
    KIB,
    MIB,
    Node,
    batch,
    check_invariants,
    check_store,
    read,
    table_that_keeps_facts,
    values_of,
)
from tests.support.depth import examples

pytestmark = pytest.mark.spec("E.8", "A.2", "J.1")

T = TypeVar("T")


def weight_of(value: bytes) -> int:
    return len(value) + 1


sizes = st.sampled_from([0, 10, 30, 200, 900, 2000, 5000, 33_000, 70_000, 140_000, 200_000])
bursts = st.lists(st.tuples(sizes, st.integers(1, 3), st.sampled_from([-1, -1, 5, 6])), min_size=1, max_size=6)


_CODES = {
    None: None,
    "refused": ErrorCode.KAFKA_STORAGE_ERROR,
    "crashed": ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


@dataclass
class Model:
    """What the log must hold: values by offset, None in a gap, and where it starts."""

    values: list[bytes | None] = field(default_factory=list)
    start: int = 0

    def weights(self) -> dict[int, int]:
        """Of all records up to each one, where weights are kept."""
        sums = accumulate(0 if value is None else weight_of(value) for value in self.values)
        return {number: sum_ for number, sum_ in enumerate(sums) if number >= self.start and self.values[number]}

    def from_offset(self, offset: int) -> list[tuple[int, bytes]]:
        return [(number, value) for number, value in enumerate(self.values) if number >= offset and value is not None]


class PartitionMachine(RuleBasedStateMachine):
    """One partition of two; the other one gets a record now and then, to be in the way."""

    @initialize(
        low_watermark=st.sampled_from([20_000, 300_000, 1 * MIB]),
        cache_bytes=st.sampled_from([0, MIB, 64 * MIB]),
        head_bytes=st.sampled_from([MIB, 64 * MIB]),
        by_reference=st.booleans(),
        has_large=st.sampled_from([True, True, True, False]),
        keeps_facts=st.booleans(),
    )
    def begin(
        self,
        low_watermark: int,
        cache_bytes: int,
        head_bytes: int,
        by_reference: bool,
        has_large: bool,
        keeps_facts: bool,
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.model = Model()
        self.serial = 0
        self.has_large = has_large
        self.sequences: dict[int, int] = {}
        self.sent: dict[int, tuple[int, list[bytes], int]] = {}
        self.node = Node(by_reference=by_reference, cache_bytes=cache_bytes, head_bytes=head_bytes)
        self.run(self.node.start())
        self.config = {"pq.low.watermark.bytes": str(low_watermark), "retention.ms": str(10 * DAY_MS)}
        self.keeps_facts = keeps_facts
        if keeps_facts:
            self.config["pq.partitions.per.tablet"] = "1"
        table = table_that_keeps_facts(2) if keeps_facts else None
        self.run(self.node.topic(partitions=2, config=self.config, table=table))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def server(self) -> PartitionServer:
        return self.node.partition(index=1)

    def values(self, size: int, count: int) -> list[bytes]:
        self.serial += 1
        return [b"%d.%d " % (self.serial, number) + bytes(size // count) for number in range(count)]

    async def burst(self, wanted: list[tuple[int, int, int]]) -> list[tuple[int, list[bytes], Written | ErrorCode]]:
        """Write batches all at once; each with its producer, values and outcome."""
        futures = []
        ahead = dict(self.sequences)
        for size, count, producer in wanted:
            values = self.values(size, count)
            identity = (producer, 0, ahead.get(producer, 0)) if producer >= 0 else (-1, -1, -1)
            ahead[producer] = ahead.get(producer, 0) + count
            weights = list(map(weight_of, values))
            futures.append((producer, values, self.server.write(*batch(*values, producer=identity), weights)))
        outcomes = []
        for producer, values, future in futures:
            await future.wait()
            error = future.exception()
            assert error is None or isinstance(error, KafkaError)
            outcomes.append((producer, values, error.code if error else future.result()))
        return outcomes

    def take(self, outcomes: list[tuple[int, list[bytes], Written | ErrorCode]], failure: ErrorCode | None) -> None:
        """What was acknowledged is in the model; after the first failure nothing may be acknowledged."""
        failed = False
        for producer, values, outcome in outcomes:
            if isinstance(outcome, ErrorCode):
                assert outcome is failure
                failed = True
                continue
            assert not failed
            assert outcome.base_offset == len(self.model.values)
            if producer >= 0:
                self.sent[producer] = (self.sequences.get(producer, 0), values, outcome.base_offset)
                self.sequences[producer] = self.sequences.get(producer, 0) + len(values)
            self.model.values += values

    @rule(wanted=bursts)
    def writes(self, wanted: list[tuple[int, int, int]]) -> None:
        self.take(self.run(self.burst(wanted)), None)

    @rule(wanted=bursts, at=st.booleans())
    def writes_refused(self, wanted: list[tuple[int, int, int]], at: bool) -> None:
        self.node.engine.faults.refuse_next()
        self.take(self.run(self.burst(wanted)), ErrorCode.KAFKA_STORAGE_ERROR)

    @rule(wanted=bursts)
    def writes_to_a_full_disk(self, wanted: list[tuple[int, int, int]]) -> None:
        self.node.engine.faults.fill()
        self.take(self.run(self.burst(wanted)), ErrorCode.KAFKA_STORAGE_ERROR)
        self.node.engine.faults.make_room()

    @rule(wanted=bursts, after=st.integers(0, 2), stored=st.booleans())
    def writes_of_which_one_loses_the_cell(
        self, wanted: list[tuple[int, int, int]], after: int, stored: bool
    ) -> None:
        """What was not acknowledged is there up to some batch and no further, and that batch is whole."""
        self.node.engine.faults.lose_next(after=after, stored=stored)
        outcomes = self.run(self.burst(wanted))
        acknowledged = [item for item in outcomes if isinstance(item[2], Written)]
        self.take(outcomes, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.run(self.node.restart())
        for producer, values, _ in outcomes[len(acknowledged) :]:
            if len(self.model.values) == self.server.end_offset:
                break
            assert stored
            self.take([(producer, values, Written(len(self.model.values), -1, self.model.start))], None)

    @rule(wanted=bursts)
    def writes_while_another_owner_comes(self, wanted: list[tuple[int, int, int]]) -> None:
        async def take_over() -> list[tuple[int, list[bytes], Written | ErrorCode]]:
            self.node.engine.faults.hold()
            writing = asyncio.ensure_future(self.burst(wanted))
            for _ in range(5):
                await asyncio.sleep(0)
            await self.node.start()
            return await writing

        self.take(self.run(take_over()), ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @rule(wanted=bursts)
    def writes_cut_off_by_a_crash(self, wanted: list[tuple[int, int, int]]) -> None:
        async def crash() -> list[tuple[int, list[bytes], Written | ErrorCode]]:
            self.node.engine.faults.hold()
            writing = asyncio.ensure_future(self.burst(wanted))
            for _ in range(5):
                await asyncio.sleep(0)
            self.node.engine.crash()
            return await writing

        self.take(self.run(crash()), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.run(self.node.start())

    @rule(size=sizes, count=st.integers(1, 3), ahead=st.sampled_from([0, 1, 7]))
    def mirrors(self, size: int, count: int, ahead: int) -> None:
        values = self.values(size, count)
        offset = len(self.model.values) + ahead
        is_empty = self.model.start == len(self.model.values)
        written = self.run(self.server.write_at(offset, *batch(*values), list(map(weight_of, values))))
        self.model.values += [None] * ahead + list(values)
        if is_empty:
            self.model.start = offset
        assert written == Written(offset, -1, self.model.start)

    @precondition(lambda self: not self.has_large)
    @rule(fails=st.sampled_from([None, "refused", "crashed"]), commits=st.integers(0, 2))
    def writes_a_batch_in_parts(self, fails: str | None, commits: int) -> None:
        """Once in some runs, for it takes long: three commits, of which one may fail."""
        self.has_large = True
        value = b"%d" % self.serial + bytes(2 * HEAD_BLOB_BYTES_MAX)
        failure = self.run(self._write_large(value, fails, commits))
        assert failure == _CODES[fails]
        if fails is None:
            self.model.values.append(value)
        if fails == "crashed":
            self.run(self.node.start())

    async def _write_large(self, value: bytes, fails: str | None, commits: int) -> ErrorCode | None:
        """The first commit after `commits` more does not come to be."""
        done = self.node.cell.stats().commits + commits
        outcome = self.server.write(*batch(value), [weight_of(value)])
        while fails is not None and self.node.cell.stats().commits < done:  # noqa: ASYNC110 (nobody sets an event)
            await asyncio.sleep(0)
        if fails == "refused":
            self.node.engine.faults.refuse_next()
        elif fails == "crashed":
            self.node.engine.crash()
        await outcome.wait()
        error = outcome.exception()
        assert error is None or isinstance(error, KafkaError)
        return error.code if error else None

    @rule(producer=st.sampled_from([5, 6]))
    def sends_the_last_batch_again(self, producer: int) -> None:
        if producer in self.sent:
            sequence, values, base_offset = self.sent[producer]
            written = self.run(self._write_one(values, (producer, 0, sequence)))
            assert written == Written(base_offset, -1, self.model.start)

    async def _write_one(self, values: list[bytes], producer: tuple[int, int, int]) -> Written:
        return await self.server.write(*batch(*values, producer=producer))

    @rule()
    def restarts(self) -> None:
        self.run(self.node.restart())

    @rule(part=st.integers(0, 10))
    def deletes_before(self, part: int) -> None:
        offset = self.model.start + (len(self.model.values) - self.model.start) * part // 10
        assert self.run(self.server.retention.delete_before(offset)) == offset
        self.model.start = offset

    @rule(part=st.integers(1, 10), lost=st.booleans(), stored=st.booleans())
    def deletes_in_vain(self, part: int, lost: bool, stored: bool) -> None:
        """A refused deletion changes nothing; one that loses the cell is done or not."""
        offset = self.model.start + (len(self.model.values) - self.model.start) * part // 10
        if offset == self.model.start:
            return
        if lost:
            self.node.engine.faults.lose_next(stored=stored)
        else:
            self.node.engine.faults.refuse_next()
        with pytest.raises(KafkaError, match="NOT_LEADER" if lost else "STORAGE"):
            self.run(self.server.retention.delete_before(offset))
        if lost:
            self.run(self.node.restart())
            self.model.start = offset if stored else self.model.start

    @rule(size_bytes=st.sampled_from([0, 1000, 100_000, MIB]))
    def is_limited_in_size(self, size_bytes: int) -> None:
        """Whole blobs go from the front while enough is left; the last one stays."""
        self.configure(**{"retention.bytes": str(size_bytes)})
        before = self.server.size_bytes
        self.run(self.node.topics.retain(nobody_knows))
        assert self.server.size_bytes >= min(size_bytes, before)
        assert (self.server.end_offset > self.server.start_offset) == (len(self.model.values) > self.model.start)
        self.take_retention()
        self.configure()

    def take_retention(self) -> None:
        """Retention has moved the start, and forgotten producers that were idle for a day and have no data left."""
        self.model.start = self.server.start_offset
        known = {producer_id for producer_id, _ in self.server.state.producers}
        self.sent = {producer: item for producer, item in self.sent.items() if producer in known}
        self.sequences = {producer: item for producer, item in self.sequences.items() if producer in known}

    def configure(self, **more: str) -> None:
        self.run(self.node.topics.reconfigure("t", lambda _: {**self.config, **more}))

    @rule(days=st.integers(0, 12))
    def time_passes(self, days: int) -> None:
        self.node.now_ms += days * DAY_MS
        self.run(self.node.topics.retain(nobody_knows))
        assert self.model.start <= self.server.start_offset <= len(self.model.values)
        if days > 10:
            assert self.server.start_offset == len(self.model.values)
        self.take_retention()

    @rule(size=sizes)
    def the_other_partition_is_written(self, size: int) -> None:
        async def write() -> Written:
            return await self.node.partition(index=0).write(*batch(bytes(size)))

        self.run(write())

    @rule(part=st.integers(0, 9), bytes_max=st.sampled_from([1, 1000, 100_000, 10 * MIB]))
    def reads(self, part: int, bytes_max: int) -> None:
        offset = self.model.start + (len(self.model.values) - self.model.start) * part // 10
        expected = self.model.from_offset(offset)
        found = self.run(self._read(offset, bytes_max))
        assert found == expected[: len(found)]
        assert bool(found) == bool(expected)

    async def _read(self, offset: int, bytes_max: int) -> list[tuple[int, bytes | None]]:
        return values_of(await read(self.server, offset, bytes_max), offset)

    @rule()
    def reads_everything(self) -> None:
        async def read() -> list[tuple[int, bytes | None]]:
            found: list[tuple[int, bytes | None]] = []
            while (offset := found[-1][0] + 1 if found else self.model.start) < len(self.model.values):
                found += await self._read(offset, 500 * KIB)
            return found

        assert self.run(read()) == self.model.from_offset(self.model.start)

    @rule(part=st.integers(0, 9))
    def reads_facts(self, part: int) -> None:
        offset = self.model.start + (len(self.model.values) - self.model.start) * part // 10
        found = list(self.run(self.server.facts.read(offset, len(self.model.values))))
        expected = {number: sum_ for number, sum_ in self.model.weights().items() if number >= offset}
        assert {fact.row_index: fact.cumulative_weight for fact in found} == (expected if self.keeps_facts else {})
        stamps = [fact.timestamp for fact in found]
        assert stamps == sorted(stamps)

    @invariant()
    def the_state_is_sound(self) -> None:
        if hasattr(self, "node"):
            server = self.server
            assert (server.start_offset, server.end_offset) == (self.model.start, len(self.model.values))
            check_invariants(server.state)
            self.run(check_store(self.node, server))
            held = [self.node.partition(index=index).state.head.run.held for index in range(2)]
            assert self.node.topics.memory.heads.size == sum(held)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.run(self.node.stop())
            self.loop.close()


PartitionMachine.TestCase.settings = settings(
    max_examples=examples(120), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestPartition = PartitionMachine.TestCase

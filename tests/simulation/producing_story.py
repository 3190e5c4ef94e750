"""Kafka transactions on a simulated node: producers with transactional ids, readers of committed records, offsets.

All that they do and see is a history, which tests/histories/log_checker.py looks through.

Steps are coroutines of plain arguments. A client sends a request until it knows the answer, or gives the transaction
up.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

from pqbroker.broker.services.transactional_producers import rules
from pqbroker.broker.services.transactional_producers.producers import TransactionalProducers
from pqbroker.broker.services.transactional_producers.rules import NO_CLAIM, Addition, Claim, End, Initialisation
from pqbroker.pq.log.write_cycle import Written
from pqbroker.pq.reading.query import READ_COMMITTED, ReadQuery, visible_end
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.produced_batches import check_produced
from pqbroker.protocol.records import TRANSACTIONAL, Record, encode_batch
from pqbroker.storage.engine import BlobMissing, CommitRefused, ShardLost
from pqbroker.storage.ids import SYSTEM_CELL
from pqbroker.storage.kv.commands import KeyMissing
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.coordinator_rows import PartitionId, PendingOffset, TransactionalImage
from pqbroker.storage.tablets.scheme_topics import TopicExists
from tests.histories.committed import committed_values
from tests.histories.history import Ending
from tests.histories.log_checker import check_log
from tests.histories.log_history import Found, LogHistory, Produced, Reading, Seen, Sent
from tests.simulation.compacted_story import BACK_OFF_S, REFUSED, SETTLES_S
from tests.simulation.ledger import expect
from tests.simulation.node import SimulatedNode

A = TypeVar("A")
PRODUCED: Final = "produced"
DROPPED: Final = "dropped"
"""A topic that is deleted and created again, with transactions open in it; nobody reads it."""
PARTITIONS: Final = 2
PATIENCE_S: Final = 3.0
READ_BYTES: Final = 4_000
CONFIG: Final[Mapping[str, str]] = {
    "pq.low.watermark.bytes": "1024", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "300",
    "retention.ms": "-1", "segment.ms": "1000", "pq.partitions.per.tablet": "1",
}  # fmt: skip
COMING_BACK: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)  # fmt: skip
"""Refusals after which a client sends the same request again."""
OVER: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)  # fmt: skip
"""Refusals after which a transaction of a client is over."""


class TopicGone(Exception):
    """The topic was deleted that a client writes to."""


class GivenUp(Exception):
    """The transaction of a client was fenced, timed out, or is waited for no longer."""


class PlannedBatch(NamedTuple):
    """A batch of a transaction: its partition, the keys of its records, how large they are."""

    partition: int
    keys: Sequence[int]
    padding: int = 0
    is_sent_twice: bool = False
    """True where the first answer gets lost."""


class PlannedTransaction(NamedTuple):
    """Plan of a client. `think_s`: time between its requests; `last`: the batch at which it dies."""

    batches: Sequence[PlannedBatch]
    last: PlannedBatch
    is_commit: bool = True
    has_offsets: bool = False
    think_s: float = 0.0
    is_left_open: bool = False
    writes_dropped: bool = False
    """True where it writes to the topic, too, that is deleted now and then."""
    dies: bool = False
    """True where the client dies with its last request on the way: the end, or a batch of what is left open."""


@dataclass(slots=True)
class TransactionalClient:
    """A process with a transactional id. `is_second`: it speaks version 2 of the protocol."""

    name: str
    transactional_id: str
    is_second: bool
    timeout_ms: int
    claim: Claim = NO_CLAIM
    sequences: dict[Hashable, int] = field(default_factory=dict)
    earlier: list[Claim] = field(default_factory=list)
    """Producer ids and epochs that it had before."""
    offsets: "list[_CommittedOffset]" = field(default_factory=list)
    """The offsets that its transactions commit, in that order."""
    count: int = 0
    """Number of its transactions so far, which is the offset that each commits."""

    @property
    def group(self) -> str:
        return f"group of {self.transactional_id}"

    def begins_with(self, claim: Claim) -> None:
        if claim != self.claim:
            self.sequences.clear()
            self.earlier.append(self.claim)
        self.claim = claim


class _CommittedOffset(NamedTuple):
    """An offset that a transaction commits, how that ended, and the values of its records."""

    offset: int
    ending: Ending
    values: Sequence[int]


@dataclass(slots=True)
class _Reader:
    """A reader's place in a partition."""

    partition: int
    start: int
    position: int
    found: list[Found] = field(default_factory=list)


class ProducingStory:
    """`create` comes first."""

    def __init__(self, node: SimulatedNode, producer_id: Callable[[], Awaitable[int]]) -> None:
        self.node = node
        self.history = LogHistory()
        self.config = dict(CONFIG)
        self._producer_id = producer_id
        self._moments = count()
        self._values = count(1)
        self._readers: dict[int, _Reader] = {}
        self._clients: list[TransactionalClient] = []
        self._is_over = False

    @property
    def topic(self) -> Topic | None:
        if not (self.node.is_up and self.node.owner.is_open):
            return None
        return self.node.node.cell.current.topics.get(PRODUCED)

    async def create(self, changed: Mapping[str, str]) -> None:
        """Create the topic, unless an attempt before has done so in secret."""
        self.config |= changed
        while self.topic is None:
            try:
                if self.node.is_up:
                    await self.node.node.cell.current.topics.create(PRODUCED, PARTITIONS, self.config)
            except (CommitRefused, ShardLost, TopicExists):
                await asyncio.sleep(BACK_OFF_S)
            await asyncio.sleep(BACK_OFF_S)

    async def server(self, index: int) -> PartitionServer:
        """Return a partition as it is served now, as soon as it is."""
        while (topic := self.topic) is None or topic.partitions[index].is_lost:  # noqa: ASYNC110
            await asyncio.sleep(BACK_OFF_S)
        return topic.partitions[index]

    # Producers

    async def begin(self, client: TransactionalClient, *, is_new: bool = False) -> None:
        """Give a client its producer id and epoch, which aborts what its id has open. `is_new`: it does not know what
        it had."""
        if client not in self._clients:
            self._clients.append(client)
        claim = NO_CLAIM if is_new else client.claim
        asked = Initialisation(client.timeout_ms, claim, await self._producer_id())
        try:
            image = await self._until_known(lambda: self._producers().initialise(client.transactional_id, asked))
        except GivenUp:  # fenced by another instance: it begins as a new one
            asked = asked._replace(claim=NO_CLAIM)
            image = await self._until_known(lambda: self._producers().initialise(client.transactional_id, asked))
        client.begins_with(rules.claim_after(image))

    async def transact(self, client: TransactionalClient, planned: PlannedTransaction) -> None:
        """One transaction of a client, which begins again behind one that is over against its will."""
        sends: list[Sent] = []
        ending, asked = Ending.FAIL, None
        client.count += 1
        try:
            await self._write_all(client, planned, sends)
            if not planned.is_left_open:
                asked = next(self._moments) if planned.is_commit else None
                ending = await self._end(client, is_commit=planned.is_commit, is_awaited=not planned.dies)
            elif planned.dies:
                await self._write(client, planned.last, sends, is_awaited=False)
        except GivenUp:
            pass
        if not planned.is_commit:
            ending = Ending.FAIL
        self.history.produced.append(Produced(sends, ending, asked, client.name))
        if planned.has_offsets and ending is not Ending.FAIL:
            client.offsets.append(_CommittedOffset(client.count, ending, [sent.value for sent in sends]))
        if planned.is_left_open or planned.dies or ending is not Ending.OK:
            await asyncio.sleep(planned.think_s)
            await self.begin(client, is_new=planned.dies)

    async def trespass(self, client: TransactionalClient, claim: Claim, planned: PlannedBatch) -> None:
        """A batch and a commit of an earlier epoch: both are refused."""
        if claim.epoch >= client.claim.epoch or claim.producer_id != client.claim.producer_id:
            return
        name = f"zombie {next(self._values)}"
        zombie = TransactionalClient(name, client.transactional_id, client.is_second, 1000, claim)
        sends: list[Sent] = []
        try:
            await self._write(zombie, planned, sends)
            await self._end(zombie, is_commit=True)
        except GivenUp:
            pass
        self.history.produced.append(Produced(sends, Ending.FAIL, None, zombie.name))

    async def _write_all(
        self, client: TransactionalClient, planned: PlannedTransaction, sends: list[Sent]
    ) -> None:
        await self._add_partitions(client, {one.partition for one in planned.batches})
        for one in planned.batches:
            await self._write(client, one, sends)
            await asyncio.sleep(planned.think_s)
        if planned.writes_dropped:
            with suppress(TopicGone):
                await self._write_dropped(client)
        if planned.has_offsets:
            await self._add_offsets(client)

    async def _write(
        self, client: TransactionalClient, planned: PlannedBatch, sends: list[Sent], *, is_awaited: bool = True
    ) -> None:
        """Write one batch, as an idempotent producer does."""
        values = [next(self._values) for _ in planned.keys]
        first = len(sends)
        is_keyed = "compact" in self.config.get("cleanup.policy", "")
        keys = [b"%d" % key for key in planned.keys]
        sends.extend(
            Sent(planned.partition, value, None, key if is_keyed else None)
            for key, value in zip(keys, values, strict=True)
        )
        sequence = client.sequences.get(planned.partition, 0)
        client.sequences[planned.partition] = sequence + len(values)
        encoded = encode_batch(
            [
                Record(0, self.node.clock(), key, b"%d:" % value + bytes(planned.padding))
                for key, value in zip(keys, values, strict=True)
            ],
            producer_id=client.claim.producer_id, producer_epoch=client.claim.epoch, base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )  # fmt: skip
        if not is_awaited:
            with suppress(KafkaError):
                self._append(client, planned.partition, encoded)
            return
        for _ in range(1 + planned.is_sent_twice):
            written = await self._until_known(lambda: self._append(client, planned.partition, encoded))
        if written.base_offset >= 0:
            for number, sent in enumerate(sends[first:]):
                sends[first + number] = sent._replace(offset=written.base_offset + number)

    async def _write_dropped(self, client: TransactionalClient) -> None:
        """Write a batch to a topic that may be deleted meanwhile. TopicGone."""
        topic = self._dropped()
        topic_id = topic.record.topic_id
        encoded = encode_batch(
            [Record(0, self.node.clock(), b"k", b"0:")], producer_id=client.claim.producer_id,
            producer_epoch=client.claim.epoch, base_sequence=client.sequences.get(topic_id, 0),
            attributes=TRANSACTIONAL,
        )  # fmt: skip
        client.sequences[topic_id] = client.sequences.get(topic_id, 0) + 1
        if not client.is_second:
            await self._add(client, Addition(frozenset({PartitionId(topic_id, 0)})))

        def ask() -> Outcome[Written]:
            self._producers()
            if self._dropped().record.topic_id != topic_id:
                raise TopicGone
            return self._append_to(client, self._dropped(), 0, encoded)

        await self._until_known(ask)

    def _dropped(self) -> Topic:
        topic = self.node.node.cell.current.topics.get(DROPPED) if self.node.is_up else None
        if topic is None:
            raise TopicGone
        return topic

    async def drop(self) -> None:
        """Delete the topic that nobody reads, or create it again."""
        await self.server(0)
        topics = self.node.node.cell.current.topics
        if topics.get(DROPPED) is None:
            await _try(lambda: topics.create(DROPPED, 1, {}))
        else:
            await _try(lambda: topics.delete(DROPPED))

    def _append(self, client: TransactionalClient, index: int, encoded: bytearray) -> Outcome[Written]:
        """Send a batch, as the handler of Produce does. KafkaError."""
        self._producers()
        topic = self.topic
        if topic is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the node is not up")
        return self._append_to(client, topic, index, encoded)

    def _append_to(
        self, client: TransactionalClient, topic: Topic, index: int, encoded: bytearray
    ) -> Outcome[Written]:
        producers = self._producers()
        server, partition = topic.partitions[index], PartitionId(topic.record.topic_id, index)
        view = memoryview(bytearray(encoded))
        header = check_produced(view, 1 << 30)
        if not client.is_second:
            producers.check_added(client.transactional_id, client.claim, partition)
            return server.write(view, header)
        outcome: Outcome[Written] = Outcome()

        def then(refusal: KafkaError | None) -> None:
            if refusal is not None:
                outcome.set_exception(refusal)
            else:
                server.writer.append(view, header, outcome.decide)

        producers.admit(client.transactional_id, client.claim, partition, then)
        return outcome

    async def _add_offsets(self, client: TransactionalClient) -> None:
        if not client.is_second:
            await self._add(client, Addition(groups=frozenset({client.group})))

        def ask() -> Outcome[TransactionalImage]:
            topic = self.topic
            producers = self._producers()
            if topic is None:
                raise KafkaError(ErrorCode.NOT_COORDINATOR, "the node is not up")
            stored = self.node.node.cell.current.topics.offsets.at(client.group, (PRODUCED, 0))
            now_ms = max(self.node.clock(), stored.commit_ms + 1 if stored is not None else 0)
            partition = PartitionId(topic.record.topic_id, 0)
            offset = PendingOffset(client.group, partition, client.count, -1, "", now_ms, "")
            addition = Addition(groups=frozenset({client.group}), offsets=(offset,))
            return producers.add_offsets(
                client.transactional_id, client.claim, addition, bumps_epochs=client.is_second
            )

        await self._until_known(ask)

    async def _add_partitions(self, client: TransactionalClient, partitions: Collection[int]) -> None:
        """Take partitions into a transaction, as version 1 does before it writes. GivenUp."""
        if client.is_second or not partitions:
            return
        while (topic := self.topic) is None:  # noqa: ASYNC110 (a state of the node's)
            await asyncio.sleep(BACK_OFF_S)
        topic_id = topic.record.topic_id
        await self._add(client, Addition(frozenset(PartitionId(topic_id, index) for index in partitions)))

    async def _add(self, client: TransactionalClient, addition: Addition) -> None:
        await self._until_known(lambda: self._producers().add(client.transactional_id, client.claim, addition))

    async def _end(self, client: TransactionalClient, *, is_commit: bool, is_awaited: bool = True) -> Ending:
        """Ask for the end until its outcome is known, or once."""
        asked = End(is_commit, client.is_second, await self._producer_id())
        if not is_awaited:
            with suppress(KafkaError):
                self._producers().end(client.transactional_id, client.claim, asked)
            return Ending.UNKNOWN
        is_doubtful = False
        async with asyncio.timeout(SETTLES_S):
            while True:
                try:
                    image = await self._producers().end(client.transactional_id, client.claim, asked)
                except KafkaError as refusal:
                    if refusal.code in OVER:
                        return Ending.UNKNOWN if is_doubtful else Ending.FAIL
                    expect(refusal.code in COMING_BACK, f"{client.name} may not end: {refusal!r}")
                    is_doubtful = True
                else:
                    if client.is_second:
                        client.begins_with(rules.claim_after(image))
                    return Ending.OK
                await asyncio.sleep(BACK_OFF_S)

    async def _until_known(self, ask: Callable[[], Awaitable[A]]) -> A:
        """Send a request until it is answered. GivenUp."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLES_S
        while loop.time() < deadline:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await _settled(ask())
            except TimeoutError:
                continue
            except KafkaError as refusal:
                if refusal.code in OVER:
                    raise GivenUp from refusal
                expect(refusal.code in COMING_BACK, f"a request is refused: {refusal!r}")
            await asyncio.sleep(BACK_OFF_S)
        raise GivenUp

    def _producers(self) -> TransactionalProducers:
        if not (self.node.is_up and self.node.owner.is_open):
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "the node is not up")
        return self.node.node.cell.current.transactional_producers

    # Readers

    async def read(self, index: int, *, from_start: bool = False) -> None:
        """Read on in a partition to its last stable offset, or begin again at its start."""
        reader = self._readers.get(index)
        if reader is None or from_start:
            self._close(index)
            reader = self._readers[index] = _Reader(index, 0, 0)
        await self._read_on(reader, await self.server(index))

    async def _read_on(self, reader: _Reader, server: PartitionServer) -> None:
        while True:
            invoked = next(self._moments)
            end = visible_end(server.state, READ_COMMITTED)
            self._note(("stable", reader.partition), end, invoked)
            self._note(("end", reader.partition), server.end_offset, invoked)
            if reader.position >= end:
                return
            spans = server.state.transactions.aborted
            try:
                read = server.read(ReadQuery(reader.position, end, READ_BYTES))
                some = await read if isinstance(read, Awaitable) else read
            except (KafkaError, ShardLost, BlobMissing, KeyMissing):
                await asyncio.sleep(BACK_OFF_S)
                server = await self.server(reader.partition)
                continue
            aborted = [] if spans is None else spans.between(reader.position, some.next_offset)
            named = [(span.producer_id, span.first_offset) for span in aborted]
            values, _ = committed_values(b"".join(some.in_memory()), named)
            for offset, value in values:
                if offset >= reader.position:
                    reader.found.append(Found(offset, value, next(self._moments)))
            expect(some.next_offset > reader.position, f"a reader does not get on from offset {reader.position}")
            reader.position = some.next_offset

    def look_at_offsets(self) -> None:
        """Note the offsets that groups have committed."""
        if self.topic is None:
            return
        for client in self._clients:
            try:
                stored = self.node.node.cell.current.topics.offsets.at(client.group, (PRODUCED, 0))
            except KafkaError:
                return
            self._note(("group", client.group), 0 if stored is None else stored.offset, next(self._moments))

    def _note(self, name: tuple[str, Any], number: int, invoked: int) -> None:
        self.history.seen.append(Seen(name, number, invoked, next(self._moments)))

    def _close(self, index: int, *, is_last: bool = False) -> None:
        reader = self._readers.pop(index, None)
        if reader is not None:
            reading = Reading(index, reader.start, reader.found, reader.position, is_last)
            self.history.readings.append(reading)

    # Disturbances

    async def move(self, index: int, place: int) -> None:
        """Have a partition live in another cell, by its place among them."""
        await self.server(index)
        topic, opened = self.topic, self.node.owner.current
        if topic is None:
            return
        cells = [SYSTEM_CELL, *sorted(opened.hive.cells)]
        owner, tablet_id = opened.topics.owner_of(topic), topic.record.tablets[index]
        await _try(lambda: opened.others.move_tablet(owner, tablet_id, cells[place % len(cells)]))

    async def restart_tablet(self, index: int) -> None:
        await self.server(index)
        topic = self.topic
        if topic is not None:
            tablet_id = topic.record.tablets[index]
            await _try(lambda: self.node.owner.restart_tablet(tablet_id))

    async def flush(self, index: int) -> None:
        server = await self.server(index)
        await _try(partial(_flushed, server))

    async def clean(self, index: int) -> None:
        await self.server(index)
        topic = self.topic
        if topic is not None and "compact" in topic.record.config.get("cleanup.policy", ""):
            self.node.node.cleaner.force(topic, topic.partitions[index])

    async def abort(self, client: TransactionalClient) -> None:
        """Abort what an id has open, as an operator does."""
        try:
            await self._producers().abort(client.transactional_id)
        except KafkaError as refusal:
            known = COMING_BACK | {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND}
            expect(refusal.code in known, f"an operator may not abort: {refusal!r}")

    # The end

    async def settle(self) -> None:
        """Return when nothing of a transaction is open or being ended."""
        async with asyncio.timeout(SETTLES_S):
            for client in self._clients:
                await self.begin(client)
            while not self._is_ended():  # noqa: ASYNC110 (a state of the node's)
                await asyncio.sleep(BACK_OFF_S)

    def _is_ended(self) -> bool:
        try:
            producers = self._producers()
            producers.check_every()
        except KafkaError:
            return False
        return not any(rules.is_prepared(image) for image in producers.images())

    async def verify(self) -> None:
        """Read all once more, and look through the history."""
        await self.settle()
        for index in range(PARTITIONS):
            server = await self.server(index)
            expect(not server.state.transactions.open, f"{PRODUCED}-{index} has open transactions")
            await self.read(index, from_start=True)
            self._close(index, is_last=True)
        expect(not self._producers().has_pending_offsets, "offsets are still pending")
        self.look_at_offsets()
        self._verify_offsets()
        found = check_log(self.history)
        expect(not found, "; ".join(map(str, found[:3])))

    def _verify_offsets(self) -> None:
        """A group has the offset of the last transaction that committed one."""
        seen = {one.name: one.number for one in self.history.seen}
        for client in self._clients:
            wanted = self._offsets_owed(client)
            found = seen.get(("group", client.group), 0)
            expect(found in wanted, f"{client.group} has offset {found}, not one of {sorted(wanted)}")

    def _offsets_owed(self, client: TransactionalClient) -> set[int]:
        """Return the offsets that a client's group may have: where a transaction's end is unknown its records tell."""
        read = {found.value for reading in self.history.readings for found in reading.found}
        owed = {0}
        for one in client.offsets:
            if one.ending is Ending.OK or read.intersection(one.values):
                owed = {one.offset}
            elif not one.values or "compact" in self.config.get("cleanup.policy", ""):
                owed.add(one.offset)
        return owed


async def _settled(asked: Awaitable[A]) -> A:
    return await asked


async def _flushed(server: PartitionServer) -> None:
    await server.flush()


async def _try(step: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    try:
        await step()
    except REFUSED:
        return

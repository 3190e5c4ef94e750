"""Transactional producers of a node: their ids on the coordinator tablets, by hash, and what is known across them.

A request is decided behind those of the same id that came before, and answered when that is durable. Batches ask here,
in memory, whether their partition belongs to their producer's transaction.
"""

import asyncio
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from pqbroker.broker.services.commits.commits import Commits
from pqbroker.broker.services.commits.open_transactions import OpenTransaction
from pqbroker.broker.services.coordination.coordinator import Coordinator
from pqbroker.broker.services.transactional_producers import rules
from pqbroker.broker.services.transactional_producers.ending import write_end
from pqbroker.broker.services.transactional_producers.ending_at_once import Ending, EndRounds
from pqbroker.broker.services.transactional_producers.rules import Addition, Claim, End, Initialisation, Step
from pqbroker.broker.services.transactional_producers.transactional_ids import Decide, Resident, TransactionalIds
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.shares import Shares, first_of
from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.coordinator_rows import PartitionId, TransactionalIdState, TransactionalImage

_NAME_CHARACTERS = 100
_FIRST_BYTES = 64 << 10
"""First part of an address of the bytes of all ids, at least."""
EXPIRED_AT_ONCE = 1000
"""Ids that are looked at between two turns of the loop."""


@dataclass(frozen=True, slots=True)
class TransactionalLimits:
    """Limits of transactional ids."""

    timeout_max_ms: int
    kept_ms: int
    wait_ms: int
    id_bytes_max: int
    bytes_max: int
    name_bytes_max: int


@dataclass(slots=True)
class EndCounters:
    """Counts of ended transactions of producers since the start of the process."""

    committed: int = 0
    aborted: int = 0


class Lent(NamedTuple):
    """An id whose decided image a commit over tables stores; `give_back` has to follow."""

    ids: TransactionalIds
    resident: Resident
    decided: TransactionalImage
    now_ms: int

    @property
    def ended(self) -> TransactionalImage | None:
        """Return the id once its end is written too; None: it is gone then."""
        return rules.after_end(self.decided, self.now_ms)

    def give_back(self, images: Sequence[TransactionalImage | None]) -> None:
        """The id has these images by now, all durable; none: it is as it was."""
        self.ids.give_back(self.resident, images)


def _once_ended(image: TransactionalImage | None) -> Step:
    """Wait, as a rule, for the end of a decided transaction."""
    return Step(image, waits=image is not None and rules.is_prepared(image))


def not_found(transactional_id: str) -> KafkaError:
    text = f"there is no transactional id {transactional_id[:_NAME_CHARACTERS]!r}"
    return KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, text)


class TransactionalProducers:
    """Every transactional id of one opening of the system cell.

    KafkaError of every request: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR while the id's tablet is not served.
    """

    def __init__(
        self, coordinators: Sequence[Coordinator], topics: Topics, commits: Commits, settings: BrokerSettings,
        counters: EndCounters,
    ) -> None:
        self._topics = topics
        self.clock = commits.now_ms
        self._rounds = EndRounds(topics, commits, commits.now_ms)
        commits.aborted = self._abort_taken_along
        self.limits = limits = TransactionalLimits(
            timeout_max_ms=settings.transaction_max_timeout_ms,
            kept_ms=settings.transactional_id_expiration_ms,
            wait_ms=settings.add_partitions_wait_ms,
            id_bytes_max=settings.transactional_id_bytes_max,
            bytes_max=settings.transactional_ids_bytes_max,
            name_bytes_max=settings.group_id_bytes_max,
        )
        self.wait_ms = limits.wait_ms
        self.counters = counters
        self._shares = Shares[str]()
        """Bytes of all ids, by the address of the client that made them."""
        self._by_producer: dict[int, TransactionalImage] = {}
        self._pending: dict[str, Counter[PartitionId]] = {}
        """Partitions with offsets that are not committed yet, by group."""
        self._ids = tuple(TransactionalIds(coordinator, self) for coordinator in coordinators)

    def initialise(self, transactional_id: str, asked: Initialisation) -> Outcome[TransactionalImage]:
        """Give a producer its id and epoch. KafkaError 42, 44, 50, 51, 90."""
        if not transactional_id or transactional_id.startswith(rules.PASSING_PREFIX):
            text = f"the transactional id is {transactional_id[:_NAME_CHARACTERS]!r}; give one that is not empty, and"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text} does not begin with {rules.PASSING_PREFIX}")
        size = len(transactional_id.encode(errors="surrogatepass"))
        if size > self.limits.name_bytes_max:
            text = f"a transactional id of {size} bytes; pqbroker.group.id.bytes.max is {self.limits.name_bytes_max}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if not 0 < asked.timeout_ms <= self.limits.timeout_max_ms:
            text = f"a transaction timeout of {asked.timeout_ms} ms; transaction.max.timeout.ms is "
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{text}{self.limits.timeout_max_ms}")
        return self._ask(
            transactional_id, lambda image: rules.initialise(image, transactional_id, asked, self.clock())
        )

    def add(
        self, transactional_id: str, claim: Claim, addition: Addition, *, bumps_epochs: bool = False
    ) -> Outcome[TransactionalImage]:
        """Take partitions and groups into the producer's transaction. KafkaError 44, 48, 49, 51, 90."""
        return self._ask(
            transactional_id,
            lambda image: rules.add(image, claim, addition, self.clock(), bumps_epochs=bumps_epochs),
        )

    def add_offsets(
        self, transactional_id: str, claim: Claim, addition: Addition, *, bumps_epochs: bool
    ) -> Outcome[TransactionalImage]:
        """Take offsets into the producer's transaction. KafkaError 44, 48, 49, 51, 90."""
        return self._ask(
            transactional_id,
            lambda image: rules.add_offsets(image, claim, addition, self.clock(), bumps_epochs=bumps_epochs),
        )

    def end(self, transactional_id: str, claim: Claim, asked: End) -> Outcome[TransactionalImage]:
        """Decide the producer's transaction; its markers follow. KafkaError 48, 49, 51, 90."""
        return self._ask(transactional_id, lambda image: rules.end(image, claim, asked, self.clock()))

    def abort(self, transactional_id: str) -> Outcome[TransactionalImage]:
        """Abort the open transaction of an id, if there is one, and fence its producer, for operators."""

        def decide(image: TransactionalImage | None) -> Step:
            if image is None:
                return Step(image, not_found(transactional_id))
            is_open = image.state is TransactionalIdState.ONGOING
            return Step(rules.fenced(image, self.clock()) if is_open else image)

        return self._ask(transactional_id, decide)

    async def abort_whole(self, transactional_id: str) -> None:
        """Abort the open transaction of an id, and wait for its markers as long as a next transaction would."""
        await self.abort(transactional_id)
        await self._change(transactional_id, _once_ended)

    def check_added(self, transactional_id: str, claim: Claim, partition: PartitionId) -> None:
        """Check, in memory, that a producer may write to a partition in its transaction. KafkaError 48, 49, 51, 90."""
        refusal = rules.check_added(self.find(transactional_id), claim, frozenset({partition}))
        if refusal is not None:
            raise refusal

    def admit(
        self, transactional_id: str, claim: Claim, partition: PartitionId, then: Callable[[KafkaError | None], None]
    ) -> None:
        """Take the partition into the transaction of a batch, and call `then`, with the refusal if there is one: in
        this call where the partition belongs to it already. Batches of an id are let through in the order of the calls.
        """
        ids = self._ids_of(transactional_id)
        resident = ids.residents.get(transactional_id)
        image = None if resident is None or resident.is_busy else resident.image
        if rules.check_added(image, claim, frozenset({partition})) is None:
            then(None)
            return
        addition = Addition(frozenset({partition}))
        decide = self._limited(
            lambda image: rules.add(image, claim, addition, self.clock(), bumps_epochs=True)
        )
        ids.ask(transactional_id, decide, lambda _, refusal: then(refusal))

    def find_open(self, transactional_id: str) -> TransactionalImage | None:
        """Return an id whose transaction is open, and of which nothing is asked now: batches for its partitions need no
        admission. None: they do. KafkaError 15, 16."""
        resident = self._ids_of(transactional_id).residents.get(transactional_id)
        if resident is None or resident.is_busy or resident.image is None:
            return None
        return resident.image if resident.image.state is TransactionalIdState.ONGOING else None

    def is_unstable(self, group_id: str, partition: PartitionId) -> bool:
        """Return True if a transaction has an offset of the group in the partition that is not committed yet."""
        return partition in self._pending.get(group_id, ())

    @property
    def has_pending_offsets(self) -> bool:
        return bool(self._pending)

    async def drop_offsets(self, group_id: str, partitions: Collection[PartitionId] | None = None) -> None:
        """Forget offsets of a group that no transaction has committed yet: the group, or its offsets of these
        partitions, were deleted. KafkaError 15, 16."""
        if group_id not in self._pending:
            return

        def decide(image: TransactionalImage | None) -> Step:
            return Step(None if image is None else rules.without_offsets(image, group_id, partitions))

        for image in self.images():
            if any(pending.group_id == group_id for pending in image.offsets):
                await self._change(image.transactional_id, decide)

    def find(self, transactional_id: str) -> TransactionalImage | None:
        """Return what is durable of an id; None: it is unknown. KafkaError 15, 16."""
        resident = self._ids_of(transactional_id).residents.get(transactional_id)
        return None if resident is None else resident.image

    def find_producer(self, producer_id: int) -> TransactionalImage | None:
        """Return the transactional id that has a producer id; None: none has. KafkaError 15, 16 while some are not
        known."""
        self.check_every()
        return self._by_producer.get(producer_id)

    def check_every(self) -> None:
        """Check that all ids are served and known. KafkaError 15, 16."""
        for ids in self._ids:
            ids.check()

    def images(self) -> Iterator[TransactionalImage]:
        """Yield what is durable of every id that is served, in no order; others may have their turns between them."""
        for ids in self._ids:
            for transactional_id in tuple(ids.residents):
                resident = ids.residents.get(transactional_id)
                if resident is not None and resident.image is not None:
                    yield resident.image

    @property
    def taken_bytes(self) -> int:
        """Return the bytes of all ids, as `pqbroker.transactional.ids.bytes.max` counts them."""
        return self._shares.total

    async def expire(self) -> None:
        """Forget ids that were unused for transactional.id.expiration.ms. KafkaError 15, 16; the rest goes later."""
        for number, image in enumerate(self.images(), 1):
            if number % EXPIRED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if rules.is_expired(image, self.clock(), self.limits.kept_ms):
                await self._forget(image.transactional_id)

    def follow(self, before: TransactionalImage | None, after: TransactionalImage | None) -> None:
        """Keep what is known across ids in step with one that has changed."""
        if before is not None:
            if self._by_producer.get(before.producer_id) is before:
                del self._by_producer[before.producer_id]
            self._shares.give_back(before.creator, rules.image_bytes(before))
        if after is not None:
            self._by_producer[after.producer_id] = after
            self._shares.take(after.creator, rules.image_bytes(after))
        self._follow_offsets(before, after)
        if before is None or after is None or not rules.is_prepared(before):
            return
        if before.state is TransactionalIdState.PREPARE_COMMIT:  # its next transaction may be open already
            self.counters.committed += 1
        else:
            self.counters.aborted += 1

    def lend(self, transactional_id: str, decide: Decide) -> Outcome[Lent]:
        """Have a commit over tables store what `decide` makes of an id. KafkaError as `end`."""
        lent: Outcome[Lent] = Outcome()
        ids = self._ids_of(transactional_id)

        def answer(image: TransactionalImage | None, refusal: KafkaError | None) -> None:
            if refusal is not None:
                lent.set_exception(refusal)
            else:
                assert image is not None, "what is lent is decided"
                lent.set_result(Lent(ids, ids.residents[transactional_id], image, self.clock()))

        ids.lend(transactional_id, self._limited(decide), answer)
        return lent

    async def ended(self, transactional_id: str) -> None:
        """Return when no decided transaction of an id is being ended. KafkaError 15, 16."""
        while (image := self.find(transactional_id)) is not None and rules.is_prepared(image):
            await self._change(transactional_id, _once_ended)

    @property
    def rounds(self) -> EndRounds:
        """Return what ends transactions in one commit."""
        return self._rounds

    def may_end_at_once(self, coordinator: Coordinator, decided: TransactionalImage) -> bool:
        """Return True if a transaction may be decided, and all that ends it written, in one commit."""
        return self._rounds.takes(coordinator, decided)

    def end_at_once(self, ending: Ending) -> None:
        """Decide and end a transaction in one commit, with others that are decided now."""
        self._rounds.add(ending)

    async def end_decided(self, image: TransactionalImage, coordinator_epoch: int) -> None:
        """Write what ends a decided transaction; return when all of it is durable."""
        await write_end(self._topics, image, coordinator_epoch)

    def _abort_taken_along(self, one: OpenTransaction) -> None:
        """Abort the producer's transaction that a transaction over tables would have committed."""
        if one.producer is None:
            return
        name, *claim = one.producer
        with suppress(KafkaError):  # its own timeout aborts it
            image = self.find(name)
            if image is not None and image.state is TransactionalIdState.ONGOING:
                self.end(name, Claim(*claim), End(is_commit=False, bumps_epochs=image.bumps_epochs))

    def _follow_offsets(self, before: TransactionalImage | None, after: TransactionalImage | None) -> None:
        old = () if before is None else before.offsets
        new = () if after is None else after.offsets
        if old is new:
            return
        for pending in new:
            self._pending.setdefault(pending.group_id, Counter())[pending.partition] += 1
        for pending in old:
            partitions = self._pending[pending.group_id]
            partitions[pending.partition] -= 1
            if not partitions[pending.partition]:
                del partitions[pending.partition]
            if not partitions:
                del self._pending[pending.group_id]

    def _forget(self, transactional_id: str) -> Outcome[None]:
        def decide(image: TransactionalImage | None) -> Step:
            is_over = image is not None and rules.is_expired(image, self.clock(), self.limits.kept_ms)
            return Step(None if is_over else image)

        return self._change(transactional_id, decide)

    def _change(self, transactional_id: str, decide: Decide) -> Outcome[None]:
        """Ask for what may leave no image."""
        changed: Outcome[None] = Outcome()
        ids = self._ids_of(transactional_id)
        ids.ask(transactional_id, decide, lambda _, refusal: changed.settle(refusal))
        return changed

    def _ask(self, transactional_id: str, decide: Decide) -> Outcome[TransactionalImage]:
        """Ask for what leaves an image where it is not refused."""
        outcome: Outcome[TransactionalImage] = Outcome()

        def answer(image: TransactionalImage | None, refusal: KafkaError | None) -> None:
            if refusal is not None:
                outcome.set_exception(refusal)
            else:
                assert image is not None, "only what expires is forgotten"
                outcome.set_result(image)

        self._ids_of(transactional_id).ask(transactional_id, self._limited(decide), answer)
        return outcome

    def _limited(self, decide: Decide) -> Decide:
        """Refuse a request that would make ids take more than their limits."""

        def within(image: TransactionalImage | None) -> Step:
            step = decide(image)
            if step.image is None or step.image is image or step.refusal is not None:
                return step
            size = rules.image_bytes(step.image)
            before = 0 if image is None else rules.image_bytes(image)
            refusal = None if size <= before else self._refusal(step.image, size, size - before)
            return step if refusal is None else Step(image, refusal)

        return within

    def _refusal(self, image: TransactionalImage, size: int, growth: int) -> KafkaError | None:
        limits = self.limits
        if size > limits.id_bytes_max:
            text = f"partitions and offsets of {size} bytes in one transaction; pqbroker.transactional.id.bytes.max is "
            return KafkaError(ErrorCode.POLICY_VIOLATION, f"{text}{limits.id_bytes_max}")
        first = first_of(limits.bytes_max, _FIRST_BYTES)
        if self._shares.may_take(limits.bytes_max, image.creator, growth, first=first):
            return None
        text = (
            f"transactional ids take {self._shares.total} bytes, those of {image.creator or 'clients unknown'} "
            f"{self._shares.of(image.creator)}; an eighth of {limits.bytes_max} is kept for others: use fewer ids, or "
            "raise pqbroker.transactional.ids.bytes.max"
        )
        return KafkaError(ErrorCode.POLICY_VIOLATION, text)

    def _ids_of(self, transactional_id: str) -> TransactionalIds:
        """Return the ids of the coordinator that an id belongs to."""
        name = transactional_id.encode(errors="surrogatepass")
        ids = self._ids[zlib.crc32(name) % len(self._ids)]
        ids.check()
        return ids

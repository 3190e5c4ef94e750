"""Transactional batches at a node whose transactional ids another one coordinates: each is asked for over the link.

    asked     the coordinator admits it                    admitted
    asked     it is refused, or nobody answers             refused
    admitted  it is first of its producer and partition    written
    asked, admitted  a marker of the producer comes to the partition before it is written    asked again

So no batch comes to lie behind the marker that has ended its transaction, where it would hold the last stable offset
for ever.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from pqbroker.broker.peers.link_rules import LinkBusy
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call, encode_peer_call
from pqbroker.broker.services.transactional_producers.admission import BatchOfTransaction
from pqbroker.broker.services.transactional_producers.producers import TransactionalProducers
from pqbroker.broker.services.transactional_producers.rules import Claim
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.outcome import Outcome
from pqbroker.storage.tablets.coordinator_rows import PartitionId

log = logging.getLogger(__name__)

ADMISSION_TRIES: Final = 10
"""Questions for one batch, each after a marker that came in between; then its client has to come again."""

_Then = Callable[[KafkaError | None], None]


@dataclass(slots=True)
class _WaitingBatch:
    batch: BatchOfTransaction
    then: _Then
    tries: int = 0
    is_answered: bool = False
    refusal: KafkaError | None = None
    is_passed: bool = False
    """True once a marker came after the question."""

    def begin(self) -> None:
        """Note that it is asked for."""
        self.tries += 1
        self.is_answered = self.is_passed = False

    def answer(self, refusal: KafkaError | None) -> None:
        """Note the answer."""
        self.is_answered, self.refusal = True, refusal

    def meet_marker(self) -> None:
        """Note that a marker of its producer comes to its partition."""
        self.is_passed = True


class Admissions:
    """Batches that wait, a `BatchAdmission`. `ask`: asks the coordinators' node. PeerRefused, LinkBusy."""

    def __init__(self, ask: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._ask = ask
        self._waiting: dict[tuple[int, PartitionId], deque[_WaitingBatch]] = {}
        """Batches by producer and partition, in the order in which they came."""

    def admit(self, batch: BatchOfTransaction, then: _Then) -> None:
        asked = _WaitingBatch(batch, then)
        self._waiting.setdefault(_key(batch), deque()).append(asked)
        self._begin(asked)

    def meet_marker(self, producer_id: int, partition: PartitionId) -> None:
        """A marker of a producer comes to a partition now: what waits there is asked for again."""
        for asked in self._waiting.get((producer_id, partition), ()):
            asked.meet_marker()

    def _begin(self, asked: _WaitingBatch) -> None:
        asked.begin()
        task = asyncio.ensure_future(self._ask(encode_admission(asked.batch)))
        task.add_done_callback(lambda done: self._answered(asked, done))

    def _answered(self, asked: _WaitingBatch, task: "asyncio.Future[bytes]") -> None:
        asked.answer(_refusal_of(task))
        self._let_through(_key(asked.batch))

    def _let_through(self, key: tuple[int, PartitionId]) -> None:
        waiting = self._waiting.get(key, deque())
        while waiting and waiting[0].is_answered:
            first = waiting[0]
            if first.is_passed and first.refusal is None and first.tries < ADMISSION_TRIES:
                self._begin(first)
                return
            waiting.popleft()
            try:
                first.then(_passed() if first.is_passed and first.refusal is None else first.refusal)
            except BaseException:  # those behind it must not wait for ever
                asyncio.get_running_loop().call_soon(self._let_through, key)
                raise
        if not waiting:
            self._waiting.pop(key, None)


async def answer_admission(producers: TransactionalProducers, head: Any) -> Any:
    """Answer another node's question, at the coordinator; None: the batch is admitted, else code and text. LinkBroken
    for a question that is none."""
    batch = _decode(head)
    try:
        if not batch.adds:
            producers.check_added(batch.transactional_id, batch.claim, batch.partition)
            return None
        refused: Outcome[KafkaError | None] = Outcome()
        producers.admit(batch.transactional_id, batch.claim, batch.partition, refused.set_result)
        refusal = await refused
    except KafkaError as error:
        refusal = error
    return None if refusal is None else [refusal.code, refusal.message]


def encode_admission(batch: BatchOfTransaction) -> bytes:
    """Return the question for a batch, as a payload of the link."""
    topic_id, index = batch.partition
    head = [batch.transactional_id, list(batch.claim), topic_id.hex(), index, batch.adds]
    return encode_peer_call(PeerMethod.ADMIT, head)


def _decode(head: Any) -> BatchOfTransaction:
    try:
        name, (producer_id, epoch), topic_id, index, adds = head
        partition = PartitionId(bytes.fromhex(topic_id), int(index))
        return BatchOfTransaction(str(name), Claim(int(producer_id), int(epoch)), partition, bool(adds))
    except (TypeError, ValueError) as bad:
        raise LinkBroken(f"a question for a transactional batch was expected: {bad}") from None


def _refusal_of(task: "asyncio.Future[bytes]") -> KafkaError | None:
    """Return why a batch is refused."""
    if task.cancelled():
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the node stops")
    error = task.exception()
    if isinstance(error, PeerRefused | LinkBusy):
        return _not_available(error)
    if error is not None:  # nobody else looks at the task, and its batch must not wait for ever
        log.error("a batch could not be asked for; this is a defect", exc_info=error)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "asking the node that coordinates the transaction failed")
    try:
        _, told, _ = decode_peer_call(task.result())
        if told is None:
            return None
        code, text = told
        return KafkaError(ErrorCode(code), str(text))
    except (LinkBroken, TypeError, ValueError) as bad:
        return _not_available(bad)


def _not_available(error: Exception) -> KafkaError:
    text = f"the node that coordinates the transaction did not answer: {error}"
    return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)


def _passed() -> KafkaError:
    text = "transactions of the producer end here faster than a batch is asked for: retry"
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, text)


def _key(batch: BatchOfTransaction) -> tuple[int, PartitionId]:
    return batch.claim.producer_id, batch.partition

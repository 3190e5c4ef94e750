"""Rules of a transactional id, pure: states, epochs, what each request makes of it (KIP-98, KIP-360, KIP-890).

    state            request                                  becomes
    (none)           initialise                               Empty, epoch 0
    Empty            initialise                               Empty, next epoch; a new producer id behind the last epoch
                     add partitions, a group, offsets         Ongoing
                     end: abort (version 2)                   PrepareAbort, with nothing in it
                     unused for transactional.id.expiration   Dead: forgotten
    Ongoing          add                                      Ongoing
                     end                                      PrepareCommit, PrepareAbort; version 2: next epoch
                     initialise, time-out, abort by others    PrepareAbort, next epoch: its producer is fenced
    PrepareCommit    markers and offsets are written          CompleteCommit
    PrepareAbort     markers are written                      CompleteAbort
    Prepare...       anything else                            CONCURRENT_TRANSACTIONS, or waits
    Complete...      as Empty; the end that led here may be sent again

A step gives the next image, a refusal, or both: a producer that initialises itself over an open transaction aborts it
and has to come again. Nothing of a step counts before the image is durable.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from pqbroker.broker.services.coordination.classic.memory import text_bytes
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.coordinator_rows import (
    LAST_PRODUCER_EPOCH,
    PartitionId,
    PendingOffset,
    TransactionalIdState,
    TransactionalImage,
)

PRODUCER_EPOCH_MAX: Final = (1 << 15) - 1
LAST_EPOCH: Final = LAST_PRODUCER_EPOCH
NO_EPOCH: Final = -1
ID_BYTES: Final = 1024
_PARTITION_BYTES: Final = 64
_OFFSET_BYTES: Final = 192
_GROUP_BYTES: Final = 64
NO_PRODUCER_ID: Final = -1
PASSING_PREFIX: Final = "pqbroker.transaction/"
"""Begins the ids of commits over tables, which no producer has."""

_PREPARED: Final = frozenset({TransactionalIdState.PREPARE_COMMIT, TransactionalIdState.PREPARE_ABORT})
_COMPLETED: Final[Mapping[TransactionalIdState, TransactionalIdState]] = MappingProxyType(
    {
        TransactionalIdState.PREPARE_COMMIT: TransactionalIdState.COMPLETE_COMMIT,
        TransactionalIdState.PREPARE_ABORT: TransactionalIdState.COMPLETE_ABORT,
    }
)


class Claim(NamedTuple):
    """A producer as a request names it."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


NO_CLAIM: Final = Claim()


class Initialisation(NamedTuple):
    """A producer that begins, or begins again."""

    timeout_ms: int
    claim: Claim
    """The id and epoch that it had (KIP-360); NO_CLAIM: it does not say."""
    spare_id: int
    """A producer id that nobody has, for a new transactional id or one whose epochs are used up."""
    creator: str = ""


class Addition(NamedTuple):
    """Partitions, groups and offsets that a transaction takes in."""

    partitions: frozenset[PartitionId] = frozenset()
    groups: frozenset[str] = frozenset()
    offsets: tuple[PendingOffset, ...] = ()


class End(NamedTuple):
    """An end that a producer asks for."""

    is_commit: bool
    bumps_epochs: bool = False
    """True in version 2 of the protocol (KIP-890)."""
    spare_id: int = NO_PRODUCER_ID
    """A producer id that nobody has, for a producer whose epochs are used up by this end."""


class JoinedEnd(NamedTuple):
    """The part of a producer, or of groups, in a commit over tables. `since_ms`: its start."""

    offsets: tuple[PendingOffset, ...] = ()
    since_ms: int = 0
    creator: str = ""
    """Address of the client."""


class Step(NamedTuple):
    """Outcome of a request: the image after it, and why the request is refused; `waits`: it may be tried again once
    the transaction that is being ended has ended."""

    image: TransactionalImage | None
    refusal: KafkaError | None = None
    waits: bool = False


def is_prepared(image: TransactionalImage) -> bool:
    """Return True if the transaction is decided, and being ended."""
    return image.state in _PREPARED


def claim_after(image: TransactionalImage) -> Claim:
    """Return the producer id and epoch of the next transaction, also while the end that gives them is under way."""
    if image.next_producer_id != NO_PRODUCER_ID:
        return Claim(image.next_producer_id, 0)
    return Claim(image.producer_id, image.epoch)


def initialise(
    image: TransactionalImage | None, transactional_id: str, asked: Initialisation, now_ms: int
) -> Step:
    """Give the producer its id and epoch, and fence earlier ones."""
    if image is None:
        made = TransactionalImage(
            transactional_id, asked.spare_id, 0, asked.timeout_ms, changed_ms=now_ms, creator=asked.creator
        )
        return Step(made)
    if not _may_claim(image, asked.claim):
        return Step(image, _fenced(image, asked.claim))
    if is_prepared(image):
        return Step(image, _concurrent())
    if image.state is TransactionalIdState.ONGOING:
        if asked.claim not in (NO_CLAIM, Claim(image.producer_id, image.epoch)):
            return Step(image, _fenced(image, asked.claim))
        return Step(fenced(image, now_ms), _concurrent())
    return _bumped(image, asked, now_ms)


def _may_claim(image: TransactionalImage, claim: Claim) -> bool:
    if claim == NO_CLAIM or claim.producer_id == image.producer_id:
        return True
    return claim.producer_id == image.last_producer_id and claim.epoch >= LAST_EPOCH


def _bumped(image: TransactionalImage, asked: Initialisation, now_ms: int) -> Step:
    fresh = replace(
        image, timeout_ms=asked.timeout_ms, state=TransactionalIdState.EMPTY, started_ms=-1, changed_ms=now_ms,
        bumps_epochs=False,
    )  # fmt: skip
    claim = asked.claim
    if image.epoch >= LAST_EPOCH and claim.epoch in (NO_EPOCH, image.epoch):
        last = NO_EPOCH if claim == NO_CLAIM else image.epoch
        return Step(
            replace(
                fresh, producer_id=asked.spare_id, epoch=0, last_producer_id=image.producer_id, last_epoch=last
            )
        )
    if claim == NO_CLAIM:
        return Step(replace(fresh, epoch=image.epoch + 1, last_epoch=NO_EPOCH))
    if claim.epoch == image.epoch and claim.producer_id == image.producer_id:
        return Step(replace(fresh, epoch=image.epoch + 1, last_epoch=image.epoch))
    if claim.epoch == image.last_epoch:
        return Step(fresh)  # sent again: the answer was lost
    return Step(image, _fenced(image, claim))


def fenced(image: TransactionalImage, now_ms: int) -> TransactionalImage:
    """Abort an open transaction, and fence its producer. It may begin again by naming the epoch that it had, unless
    another one has begun since (KIP-588)."""
    return replace(
        image, state=TransactionalIdState.PREPARE_ABORT, epoch=_next_epoch(image), last_epoch=image.epoch,
        next_producer_id=NO_PRODUCER_ID, changed_ms=now_ms, offsets=(),
    )  # fmt: skip


def check_claim(image: TransactionalImage | None, claim: Claim) -> KafkaError | None:
    """Return why the claim is not the producer's."""
    if image is None:
        return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "there is no such transactional id: initialise it")
    if claim.producer_id != image.producer_id:
        text = f"transactional id {image.transactional_id!r} has producer id {image.producer_id}"
        return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"{text}, not {claim.producer_id}")
    if claim.epoch != image.epoch:
        return _fenced(image, claim)
    return None


def add(
    image: TransactionalImage | None, claim: Claim, addition: Addition, now_ms: int, *, bumps_epochs: bool
) -> Step:
    """Take partitions, groups and offsets into the producer's transaction, which begins if none is open."""
    if image is not None and is_prepared(image):
        refusal = None if claim == claim_after(image) else check_claim(image, claim)
        return Step(image, refusal or _concurrent(), waits=refusal is None)
    refusal = check_claim(image, claim)
    if refusal is not None or image is None:
        return Step(image, refusal)
    if image.state is TransactionalIdState.ONGOING:
        if not addition.offsets and addition.partitions <= image.partitions and addition.groups <= image.groups:
            return Step(image)
        began = image
    else:
        began = replace(image, state=TransactionalIdState.ONGOING, started_ms=now_ms)
    return Step(
        replace(
            began,
            partitions=began.partitions | addition.partitions,
            groups=began.groups | addition.groups,
            offsets=_later(began.offsets, addition.offsets),
            changed_ms=now_ms,
            bumps_epochs=bumps_epochs,
        )
    )


def add_offsets(
    image: TransactionalImage | None, claim: Claim, addition: Addition, now_ms: int, *, bumps_epochs: bool
) -> Step:
    """Take offsets of groups into the transaction. In version 1 the groups were added before (AddOffsetsToTxn)."""
    is_version_1 = not bumps_epochs and image is not None and not is_prepared(image)
    if is_version_1 and check_claim(image, claim) is None and not _has_groups(image, addition.groups):
        return Step(image, KafkaError(ErrorCode.INVALID_TXN_STATE, "the group was not added to the transaction"))
    return add(image, claim, addition, now_ms, bumps_epochs=bumps_epochs)


def without_offsets(
    image: TransactionalImage, group_id: str, partitions: Collection[PartitionId] | None
) -> TransactionalImage:
    """Forget offsets of a group that was deleted, or of some of its partitions, unless they are being committed."""
    if is_prepared(image):
        return image
    kept = tuple(
        pending
        for pending in image.offsets
        if pending.group_id != group_id or not (partitions is None or pending.partition in partitions)
    )
    return image if len(kept) == len(image.offsets) else replace(image, offsets=kept)


def _has_groups(image: TransactionalImage | None, groups: frozenset[str]) -> bool:
    return image is not None and image.state is TransactionalIdState.ONGOING and groups <= image.groups


def _later(known: tuple[PendingOffset, ...], added: tuple[PendingOffset, ...]) -> tuple[PendingOffset, ...]:
    """Return all of them, of a group and partition the one that was added last."""
    if not added:
        return known
    last = {(pending.group_id, pending.partition): pending for pending in (*known, *added)}
    return tuple(last.values())


def check_added(
    image: TransactionalImage | None, claim: Claim, partitions: frozenset[PartitionId]
) -> KafkaError | None:
    """Return why the producer may not write to the partitions in its transaction now."""
    refusal = check_claim(image, claim)
    if refusal is not None or image is None:
        return refusal
    if is_prepared(image):
        return _concurrent()
    if image.state is not TransactionalIdState.ONGOING or not partitions <= image.partitions:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
    return None


def end(image: TransactionalImage | None, claim: Claim, asked: End, now_ms: int) -> Step:
    """Decide the producer's transaction."""
    if image is None:
        return Step(image, check_claim(image, claim))
    is_again = _is_again(image, claim, asked)
    if is_prepared(image) and not is_again and image.bumps_epochs and claim == claim_after(image):
        return Step(image, _concurrent(), waits=True)  # its next transaction, in which nothing came here
    refusal = None if is_again else check_claim(image, claim)
    if refusal is not None:
        return Step(image, refusal)
    state = image.state
    if state is TransactionalIdState.ONGOING:
        return Step(_decided(image, asked, now_ms))
    if is_prepared(image):
        is_same = (state is TransactionalIdState.PREPARE_COMMIT) == asked.is_commit
        return Step(image, _concurrent() if is_same else _invalid(image, asked))
    if asked.bumps_epochs and not is_again:
        if asked.is_commit:
            return Step(image, _invalid(image, asked))
        return Step(_decided(replace(image, started_ms=now_ms), asked, now_ms))
    asked_for = TransactionalIdState.COMPLETE_COMMIT if asked.is_commit else TransactionalIdState.COMPLETE_ABORT
    is_same = state is asked_for
    return Step(image, None if is_same else _invalid(image, asked))


def _is_again(image: TransactionalImage, claim: Claim, asked: End) -> bool:
    """Return True if the end may have been decided before, and its answer, with the next epoch, was lost."""
    if not (asked.bumps_epochs and image.bumps_epochs):
        return False
    if image.state in (TransactionalIdState.EMPTY, TransactionalIdState.ONGOING):
        return False
    if claim.producer_id == image.producer_id:
        return claim.epoch + 1 == image.epoch
    return claim == (image.last_producer_id, LAST_EPOCH) and image.epoch == 0


def _decided(image: TransactionalImage, asked: End, now_ms: int) -> TransactionalImage:
    state = TransactionalIdState.PREPARE_COMMIT if asked.is_commit else TransactionalIdState.PREPARE_ABORT
    decided = replace(
        image, state=state, changed_ms=now_ms, offsets=image.offsets if asked.is_commit else (),
        bumps_epochs=asked.bumps_epochs,
    )  # fmt: skip
    if not asked.bumps_epochs:
        return decided
    following = asked.spare_id if image.epoch >= LAST_EPOCH else NO_PRODUCER_ID
    return replace(decided, epoch=_next_epoch(image), last_epoch=image.epoch, next_producer_id=following)


def join(image: TransactionalImage | None, claim: Claim, joined: "JoinedEnd", now_ms: int) -> Step:
    """Decide a producer's transaction as a part of a commit over tables, with offsets of groups that it commits too. A
    producer without an open one takes part with its epoch alone."""
    if image is not None and is_prepared(image):
        refusal = None if claim == claim_after(image) else check_claim(image, claim)
        return Step(image, refusal or _concurrent(), waits=refusal is None)
    refusal = check_claim(image, claim)
    if refusal is not None or image is None:
        return Step(image, refusal)
    is_open = image.state is TransactionalIdState.ONGOING
    if not is_open and image.changed_ms > joined.since_ms:
        text = f"transactional id {image.transactional_id!r} has ended its transaction by itself: {image.state.value}"
        return Step(image, KafkaError(ErrorCode.INVALID_TXN_STATE, text))
    bumps_epochs = is_open and image.bumps_epochs
    if bumps_epochs and image.epoch >= LAST_EPOCH:
        text = f"the epochs of producer {image.producer_id} are used up: initialise it again"
        return Step(image, KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, text))
    began = replace(
        image, offsets=_later(image.offsets if is_open else (), joined.offsets),
        started_ms=image.started_ms if is_open else now_ms,
    )  # fmt: skip
    return Step(_decided(began, End(is_commit=True, bumps_epochs=bumps_epochs), now_ms))


def passing(name: str, producer_id: int, joined: "JoinedEnd", now_ms: int) -> TransactionalImage:
    """Return the id of one commit over tables that commits offsets without a producer: it goes with its end."""
    return TransactionalImage(
        PASSING_PREFIX + name, producer_id, 0, 0, TransactionalIdState.PREPARE_COMMIT, started_ms=now_ms,
        changed_ms=now_ms, offsets=joined.offsets, creator=joined.creator,
    )  # fmt: skip


def after_end(image: TransactionalImage, now_ms: int) -> TransactionalImage | None:
    """Return the id once all of its transaction is written; None: it is forgotten."""
    return None if image.transactional_id.startswith(PASSING_PREFIX) else complete(image, now_ms)


def complete(image: TransactionalImage, now_ms: int) -> TransactionalImage:
    """End a transaction whose markers and offsets are written."""
    completed = replace(
        image, state=_COMPLETED[image.state], partitions=frozenset(), groups=frozenset(), offsets=(), started_ms=-1,
        changed_ms=now_ms,
    )  # fmt: skip
    if image.next_producer_id == NO_PRODUCER_ID:
        return completed
    return replace(
        completed, producer_id=image.next_producer_id, epoch=0, last_producer_id=image.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )  # fmt: skip


def ends_at_ms(image: TransactionalImage) -> int | None:
    """Return when the open transaction times out; None: none is open."""
    return image.started_ms + image.timeout_ms if image.state is TransactionalIdState.ONGOING else None


def is_expired(image: TransactionalImage, now_ms: int, kept_ms: int) -> bool:
    """Return True if the id was unused for `kept_ms`, after which it is forgotten."""
    if image.state is TransactionalIdState.ONGOING or is_prepared(image):
        return False
    return image.changed_ms + kept_ms <= now_ms


def image_bytes(image: TransactionalImage) -> int:
    """Return the bytes that the id takes in memory and on disk, about."""
    texts = sum(text_bytes(pending.group_id) + text_bytes(pending.metadata) for pending in image.offsets)
    groups = sum(_GROUP_BYTES + text_bytes(group_id) for group_id in image.groups)
    entries = _PARTITION_BYTES * len(image.partitions) + _OFFSET_BYTES * len(image.offsets)
    return ID_BYTES + text_bytes(image.transactional_id) + entries + groups + texts


def _next_epoch(image: TransactionalImage) -> int:
    return min(image.epoch + 1, PRODUCER_EPOCH_MAX)


def _fenced(image: TransactionalImage, claim: Claim) -> KafkaError:
    text = f"transactional id {image.transactional_id!r} has producer {image.producer_id} in epoch {image.epoch} now"
    return KafkaError(ErrorCode.PRODUCER_FENCED, f"{text}; epoch {claim.epoch} of {claim.producer_id} is over")


def _concurrent() -> KafkaError:
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the producer's transaction is being ended: retry")


def _invalid(image: TransactionalImage, asked: End) -> KafkaError:
    wanted = "committed" if asked.is_commit else "aborted"
    return KafkaError(ErrorCode.INVALID_TXN_STATE, f"a transaction in state {image.state.value} cannot be {wanted}")

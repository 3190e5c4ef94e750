"""A commit over tables that takes a producer's transaction, or offsets of consumer groups, along: one decision for all.

The decision lies in the coordinator tablet, in the request that stores the transactional id as decided, so that both
are durable or none is. Where markers and offsets can be written now they are in that request too; else they follow it,
as behind any decision of a coordinator. Offsets without a producer have an id of their own until they are written.
"""

import secrets
from collections.abc import Sequence
from typing import NamedTuple

from pqbroker.broker.services.commits.commit import CommitRequest
from pqbroker.broker.services.commits.commits import Commits
from pqbroker.broker.services.commits.ids_part import IdsPart
from pqbroker.broker.services.transactional_producers import rules
from pqbroker.broker.services.transactional_producers.ending_at_once import Ending
from pqbroker.broker.services.transactional_producers.producers import Lent, TransactionalProducers
from pqbroker.broker.services.transactional_producers.rules import Claim, JoinedEnd, Step
from pqbroker.pq.transactions.participants import BesidePart, CommitPart
from pqbroker.pq.transactions.stored_forms import CommitDecision, TransactionId
from pqbroker.storage.tablets.coordinator_rows import TransactionalImage

_PRODUCER_BITS = 61


class JoinedProducer(NamedTuple):
    """A producer whose open transaction a commit over tables ends, in the epoch that it had at the commit's begin."""

    transactional_id: str
    claim: Claim


class JoinedCommit(NamedTuple):
    """A commit over tables with its Kafka side. `producer` None: offsets alone."""

    transaction: TransactionId
    digest: bytes
    producer: JoinedProducer | None
    joined: JoinedEnd


async def commit_joined(
    producers: TransactionalProducers, commits: Commits, asked: JoinedCommit, parts: Sequence[CommitPart]
) -> CommitDecision:
    """Commit rows and the Kafka side together. Raises as `Commits.commit`, and KafkaError 15, 16, 44, 47 to 51, 90 of
    the producer."""
    lent = await _lend(producers, asked)
    stored: Sequence[TransactionalImage | None] = ()
    try:
        request, stored_then = _request(producers, asked, parts, lent)
        decision = await commits.commit(request)
        stored = stored_then
    finally:
        lent.give_back(stored)
    return decision


async def _lend(producers: TransactionalProducers, asked: JoinedCommit) -> Lent:
    if asked.producer is not None:
        name, claim = asked.producer
        return await producers.lend(name, lambda image: rules.join(image, claim, asked.joined, producers.clock()))
    number = 1 << _PRODUCER_BITS | secrets.randbits(_PRODUCER_BITS)
    name = asked.transaction.hex()
    return await producers.lend(
        rules.PASSING_PREFIX + name, lambda _: Step(rules.passing(name, number, asked.joined, producers.clock()))
    )


def _request(
    producers: TransactionalProducers, asked: JoinedCommit, parts: Sequence[CommitPart], lent: Lent
) -> tuple[CommitRequest, Sequence[TransactionalImage | None]]:
    """Return the commit, and the images of the id once it is durable."""
    coordinator, home = lent.ids.coordinator, lent.ids.coordinator.participant_of_commits
    assert home is not None, "coordinators are homes of decisions"
    ended = lent.ended
    if not producers.may_end_at_once(coordinator, lent.decided):
        beside: Sequence[BesidePart] = [IdsPart(coordinator, [lent.decided], may_store_snapshot=True)]
        return CommitRequest(asked.transaction, parts, asked.digest, False, beside, home), (lent.decided,)
    ending = Ending(coordinator, lent.decided, lent.decided if ended is None else ended, lambda _: None)
    markers, offsets = producers.rounds.parts_of([ending])
    beside = [IdsPart(coordinator, [] if ended is None else [ended], may_store_snapshot=True), *offsets]
    stored = () if ended is None else (lent.decided, ended)
    return CommitRequest(asked.transaction, [*parts, *markers.values()], asked.digest, False, beside, home), stored

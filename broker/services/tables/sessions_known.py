"""Sessions as partitions of one node know them: the newest state of one, and pages of those of queues' producers."""

import heapq
from collections.abc import Generator, Iterable, Mapping, Sequence

from pqbroker.pq.log.sessions import SessionBatch, read_producer_session
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.transacted_batches import await_transactions

SessionPlace = tuple[str, str]
"""Producer and session: the order of pages."""
KnownSession = tuple[SessionPlace, SessionBatch]


def newest(taken: Mapping[int, SessionBatch]) -> SessionBatch | None:
    """Return what is known of a session: the greatest number, and the owner of the greatest epoch."""
    if not taken:
        return None
    owner = max(taken.values(), key=age)
    last = max(batch.sequence for batch in taken.values())
    return owner if owner.sequence == last else owner._replace(sequence=last)


def age(batch: SessionBatch) -> tuple[int, int]:
    """Return what is greater in a later state of a session."""
    return (-1 if batch.producer is None else batch.producer.epoch), batch.sequence


def page_of_sessions(
    topic: Topic, indexes: Sequence[int], count: int, after: SessionPlace
) -> Generator[None, None, list[KnownSession]]:
    """Find the first `count` sessions of producers behind one that these partitions know; others may have their turns
    between."""
    names: set[str] = set()
    for index in indexes:
        for name, _ in topic.partitions[index].state.sessions:
            if (found := read_producer_session(name)) is not None and found > after:
                names.add(name)
        yield
    page = heapq.nsmallest(count, names, key=lambda name: read_producer_session(name) or ("", ""))
    listed: list[KnownSession] = []
    for name in page:
        known = {index: topic.partitions[index].state.sessions.get(name) for index in indexes}
        latest = newest({index: batch for index, batch in known.items() if batch is not None})
        split = read_producer_session(name)
        if latest is not None and split is not None:
            listed.append((split, latest))
        yield
    return listed


async def prepared_ends(partitions: Iterable[PartitionServer]) -> None:
    """Wait, not for long, until no rows are prepared in the tablets: they may be the session's own batch."""
    known = [(one, one.known_transactions) for one in partitions]
    if held := [one for one, transactions in known if transactions is not None and transactions.prepared]:
        await await_transactions(held)

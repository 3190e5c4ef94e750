"""Sessions of tables, and rows staged for them, whichever nodes run the tablets: looked up and written at one node,
under the session's lock there, which asks the others.

The first node does so for tables in several cells. What a table in one cell needs is done at the node with that cell.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from pqbroker.broker.ground.other_nodes import NodeSilent, OtherNodes
from pqbroker.broker.services.tables import session_calls as calls
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.session_calls import SessionCall, SessionWork
from pqbroker.broker.services.tables.sessions_known import (
    KnownSession,
    SessionPlace,
    newest,
    page_of_sessions,
    prepared_ends,
)
from pqbroker.broker.services.topics.staged_places import RowsToStage, StagedHere, StagedPlace, StagedPlaces
from pqbroker.pq.log.sessions import Fence, SessionBatch
from pqbroker.pq.log.staged_rows import Decision, Piece
from pqbroker.pq.serving.joint_write import batches_taken
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.session_writes import forget_session, write_session
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError

_T = TypeVar("_T")
NO_TOPIC: Final = bytes(16)


class _Parts(NamedTuple):
    """Partitions of a topic: those of this node, and those that others run, by the numbers of the nodes."""

    here: Sequence[int]
    away: Mapping[int, Sequence[int]]

    def servers(self, topic: Topic) -> list[PartitionServer]:
        return [topic.partitions[index] for index in self.here]


def _parts(caller: TablesCaller, topic: Topic, partitions: Sequence[int] | None = None) -> _Parts:
    """Return these partitions of a topic, or all. KafkaError NOT_LEADER_OR_FOLLOWER where nobody runs some of them, or
    this node may not ask those that do."""
    leaders = caller.node.leaders
    found = leaders.by_number(topic, partitions)
    here = found.pop(leaders.number, [])
    if found and caller.node.others() is None:
        raise not_leader()
    return _Parts(here, found)


async def taken_anywhere(caller: TablesCaller, topic: Topic, session: str) -> dict[int, SessionBatch]:
    """Return the last batch of a session in each tablet that knows it, while its lock is held. KafkaError
    NOT_LEADER_OR_FOLLOWER where some tablet may know more."""
    parts = _parts(caller, topic)
    asked = (_Away(caller, topic, node, indexes).taken(session) for node, indexes in parts.away.items())
    found: dict[int, SessionBatch] = {}
    for told in await asyncio.gather(*asked):
        found.update(told)
    here = parts.servers(topic)
    await prepared_ends(here)
    found.update(batches_taken(here, session))
    return found


async def write_anywhere(
    caller: TablesCaller, topic: Topic, index: int, name: str, change: tuple[SessionBatch, SessionBatch | None]
) -> None:
    """Have a session known in a tablet by a batch, where it was known as another one. KafkaError as a write's,
    NOT_LEADER_OR_FOLLOWER where it is known otherwise."""
    parts, (batch, seen) = _parts(caller, topic, (index,)), change
    for node, indexes in parts.away.items():
        more = {"index": index, "batch": calls.encode_batch(batch), "seen": calls.encode_batch(seen)}
        await _Away(caller, topic, node, indexes).do(SessionWork.WRITE_SESSION, name, more)
    for server in parts.servers(topic):
        await write_session(server, name, batch, seen)


async def forget_anywhere(caller: TablesCaller, topic: Topic, index: int, name: str, seen: SessionBatch) -> None:
    """Forget a session in a tablet that knows it as it was seen. KafkaError as `write_anywhere`."""
    parts = _parts(caller, topic, (index,))
    for node, indexes in parts.away.items():
        more = {"index": index, "seen": calls.encode_batch(seen)}
        await _Away(caller, topic, node, indexes).do(SessionWork.FORGET_SESSION, name, more)
    for server in parts.servers(topic):
        await forget_session(server, name, seen, caller.node.clock())


async def list_anywhere(caller: TablesCaller, topic: Topic, count: int, after: SessionPlace) -> list[KnownSession]:
    """Return the first `count` sessions of producers behind one, by name. KafkaError NOT_LEADER_OR_FOLLOWER."""
    parts = _parts(caller, topic)
    asked = (_Away(caller, topic, node, indexes).listed(count, after) for node, indexes in parts.away.items())
    pages = await asyncio.gather(*asked)
    pages.append(await caller.node.turns.finish(page_of_sessions(topic, parts.here, count, after)))
    by_place: defaultdict[SessionPlace, dict[int, SessionBatch]] = defaultdict(dict)
    for number, page in enumerate(pages):
        for place, batch in page:
            by_place[place][number] = batch
    found = [(place, newest(known)) for place, known in sorted(by_place.items())[:count]]
    return [(place, batch) for place, batch in found if batch is not None]


def staged_places(caller: TablesCaller, topic: Topic, partitions: Sequence[int] | None = None) -> StagedPlaces:
    """Return the places of these partitions of a topic, or of all. KafkaError NOT_LEADER_OR_FOLLOWER."""
    here, away = _parts(caller, topic, partitions)
    own: StagedPlace = StagedHere(topic, here, caller.node.settings.staged_bytes_max)
    others = [(_StagedAway(caller, topic, node, indexes), indexes) for node, indexes in away.items()]
    return StagedPlaces(len(topic.partitions), [(own, here), *others])


async def holding_elsewhere(caller: TablesCaller) -> set[bytes]:
    """Return the ids of topics of which other nodes hold staged rows; of those that do not answer nothing is known."""
    others, found = caller.node.others(), set[bytes]()
    if others is not None:
        for node in caller.node.leaders.others:
            with suppress(KafkaError):
                found |= await _holding(others, node)
    return found


async def _holding(others: OtherNodes, node: int) -> set[bytes]:
    told, _ = await _asked(others, node, SessionCall(SessionWork.HOLDING, NO_TOPIC, 0, ()), b"")
    return _read(lambda: {bytes.fromhex(one) for one in told})


class _Away:
    """Partitions of a topic that another node runs. KafkaError as the node's, NOT_LEADER_OR_FOLLOWER where it does not
    answer; TableError, PieceUnreadable, CommitRefused as the node's."""

    def __init__(self, caller: TablesCaller, topic: Topic, node: int, indexes: Sequence[int]) -> None:
        record = topic.record
        per_tablet = record.partitions_per_tablet
        self._caller = caller
        self._node = node
        self._topic_id = record.topic_id
        self._partitions = len(topic.partitions)
        self._cells = sorted({record.cell_of(index // per_tablet) for index in indexes})

    async def taken(self, session: str) -> dict[int, SessionBatch]:
        """Return the last batch of a session in each partition that knows it."""
        found = await self.do(SessionWork.TAKEN, session, {})
        return _read(lambda: calls.decode_taken(found))

    async def listed(self, count: int, after: SessionPlace) -> list[KnownSession]:
        """Return the first sessions behind one."""
        found = await self.do(SessionWork.LIST, "", {"count": count, "after": list(after)})
        return _read(lambda: [((str(one), str(two)), SessionBatch.decode(bytes.fromhex(batch)))
                              for one, two, batch in found])  # fmt: skip

    async def do(self, work: SessionWork, session: str, more: Mapping[str, Any]) -> Any:
        """Have the node do some work without bytes; return what it says."""
        told, _ = await self.ask(work, session, more, b"")
        return told

    async def ask(
        self, work: SessionWork, session: str, more: Mapping[str, Any], body: bytes | memoryview
    ) -> tuple[Any, bytes]:
        """Have the node do some work; return what it says."""
        call = SessionCall(work, self._topic_id, self._partitions, self._cells, session, more)
        return await _asked(self._caller.node.others(), self._node, call, body)


class _StagedAway:
    """A `StagedPlace` of another node."""

    def __init__(self, caller: TablesCaller, topic: Topic, node: int, indexes: Sequence[int]) -> None:
        self._away = _Away(caller, topic, node, indexes)

    async def stage(self, fence: Fence, rows: RowsToStage) -> Piece:
        more = {"sequence": fence.sequence, "index": rows.partition, "named_tablet": rows.named_tablet}
        name, _ = await self._away.ask(SessionWork.STAGE, fence.session, more, rows.batch)
        return _read(lambda: Piece.named(name))

    async def decisions(self, session: str | None) -> Sequence[Decision]:
        _, found = await self._away.ask(SessionWork.DECISIONS, session or "", {}, b"")
        return await asyncio.to_thread(_read, lambda: calls.decode_decisions(found))

    async def taken(self, session: str) -> Mapping[int, SessionBatch]:
        return await self._away.taken(session)

    async def missing(self, fence: Fence, pieces: Sequence[Piece]) -> Sequence[Piece]:
        _, found = await self._of_pieces(SessionWork.MISSING, fence, pieces, {})
        return await asyncio.to_thread(_read, lambda: calls.decode_pieces(found))

    async def verify(self, fence: Fence, pieces: Sequence[Piece], until: float) -> bool:
        done, _ = await self._of_pieces(SessionWork.VERIFY, fence, pieces, {"left_s": _left_s(until)})
        return bool(done)

    async def write(self, fence: Fence, pieces: Sequence[Piece], until: float, *, leaves_out: bool) -> bool:
        more = {"left_s": _left_s(until), "leaves_out": leaves_out}
        done, _ = await self._of_pieces(SessionWork.WRITE, fence, pieces, more)
        return bool(done)

    async def decide(self, decision: Decision) -> None:
        await self._of_decision(SessionWork.DECIDE, decision)

    async def retract(self, decision: Decision) -> None:
        await self._of_decision(SessionWork.RETRACT, decision)

    async def end(self, decision: Decision) -> None:
        await self._of_decision(SessionWork.END, decision)

    async def clear(self, fence: Fence) -> None:
        await self._away.do(SessionWork.CLEAR, fence.session, {"sequence": fence.sequence})

    async def forget(self, before_ms: int, decided: Sequence[Decision]) -> None:
        body = await asyncio.to_thread(calls.encode_decisions, decided)
        await self._away.ask(SessionWork.FORGET, "", {"before_ms": before_ms}, body)

    async def _of_pieces(
        self, work: SessionWork, fence: Fence, pieces: Sequence[Piece], more: Mapping[str, Any]
    ) -> tuple[Any, bytes]:
        body = await asyncio.to_thread(calls.encode_pieces, pieces)
        return await self._away.ask(work, fence.session, {"sequence": fence.sequence, **more}, body)

    async def _of_decision(self, work: SessionWork, decision: Decision) -> None:
        body = await asyncio.to_thread(calls.encode_decisions, [decision])
        await self._away.ask(work, decision.session, {}, body)


def _left_s(until: float) -> float:
    return max(until - asyncio.get_running_loop().time(), 0.0)


async def _asked(
    others: OtherNodes | None, node: int, call: SessionCall, body: bytes | memoryview
) -> tuple[Any, bytes]:
    """Ask a node, and return what it says."""
    if others is None:
        raise not_leader()
    try:
        answer, answered = await others.ask_sessions(node, call.encode(), bytes(body))
        return calls.decode_told(answer), answered
    except (NodeSilent, ValueError) as silent:
        raise _silent(silent) from silent


def _read(read: Callable[[], _T]) -> _T:
    """Read an answer of a node."""
    try:
        return read()
    except (TypeError, ValueError) as bad:
        raise _silent(bad) from bad


def _silent(why: Exception) -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"tablets are at a node that does not answer: {why}: retry")

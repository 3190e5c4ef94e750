"""Sessions of tables, and rows staged for them, at a node that is not the first one: what the first one asks for.

Each call holds the session's lock here: what this node had begun in the session while it ran the table alone is over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

from pqbroker.broker.services.tables.callers import TablesNode
from pqbroker.broker.services.tables.session_calls import (
    SESSION_REFUSALS,
    SessionCall,
    SessionWork,
    decode_batch,
    decode_decisions,
    decode_pieces,
    encode_batch,
    encode_decisions,
    encode_pieces,
    encode_refusal,
    encode_taken,
)
from pqbroker.broker.services.tables.sessions_known import page_of_sessions, prepared_ends
from pqbroker.broker.services.topics.staged_places import RowsToStage, StagedHere
from pqbroker.pq.log.sessions import Fence
from pqbroker.pq.log.staged_rows import Decision, Piece
from pqbroker.pq.serving.session_writes import forget_session, write_session
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.topics import Topics
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.engine import ShardLost
from pqbroker.storage.uninterrupted import uninterrupted

SESSION_WAIT_S: Final = 20.0
"""Seconds that a call waits for another one about its session."""
_Answer = tuple[Any, bytes]


async def answer_session_call(node: TablesNode, head: Any, body: bytes) -> _Answer:
    """Return head and body of the answer to a call. ValueError for what is none."""
    call = SessionCall.decode(head)
    try:
        if call.work is SessionWork.HOLDING:
            return {"told": await node.turns.finish(_holding(node.cell.current.topics))}, b""
        told, answer = await uninterrupted(_Work(node, call, body).done())
        return {"told": told}, answer
    except SESSION_REFUSALS as refusal:
        return encode_refusal(refusal), b""
    except ShardLost:
        return encode_refusal(not_leader()), b""
    except (LookupError, TypeError) as bad:
        raise ValueError(f"a call about sessions was expected: {bad!r}") from bad


def _holding(topics: Topics) -> Generator[None, None, list[str]]:
    """Find the ids of topics of which this node holds staged rows; others may have their turns between."""
    found = []
    for name in list(topics.names()):
        topic = topics.get(name)
        if topic is not None and _holds_any(topic):
            found.append(topic.record.topic_id.hex())
        yield
    return found


def _holds_any(topic: Topic) -> bool:
    return any(one.staged.bytes or one.staged.decision_count for one in topic.partitions if one.is_loaded)


class _Work:
    """One call, and the partitions that it is about."""

    def __init__(self, node: TablesNode, call: SessionCall, body: bytes) -> None:
        """KafkaError NOT_LEADER_OR_FOLLOWER where the caller knows other partitions."""
        topic = node.cell.current.topics.by_id(call.topic_id)
        if topic is None or len(topic.partitions) != call.partitions:
            raise not_leader()
        record, cells = topic.record, set(call.cells)
        self._node = node
        self._topic = topic
        self._call = call
        self._body = body
        self._indexes = [
            index for index in range(call.partitions) if record.cell_of(index // record.partitions_per_tablet) in cells
        ]
        self._owned = frozenset(self._indexes)
        self._staged = StagedHere(topic, self._indexes, node.settings.staged_bytes_max)

    async def done(self) -> _Answer:
        """Do it, and return the answer. KafkaError, BatchRefused, PieceUnreadable, CommitRefused; LookupError,
        TypeError, ValueError for what is none."""
        session = self._call.session
        lock = self._topic.session_locks.setdefault(session, asyncio.Lock()) if session else nullcontext()
        try:
            async with asyncio.timeout(SESSION_WAIT_S) as waiting, lock:
                waiting.reschedule(None)
                if not all(self._topic.partitions[index].is_loaded for index in self._indexes):
                    raise not_leader()
                return await _WORKS[self._call.work](self)
        except TimeoutError:
            text = "another request of the session is under way: retry"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text) from None

    async def taken(self) -> _Answer:
        await prepared_ends([self._topic.partitions[index] for index in self._indexes])
        return encode_taken(await self._staged.taken(self._call.session)), b""

    async def write_session(self) -> _Answer:
        index, batch, seen = (self._call.more[name] for name in ("index", "batch", "seen"))
        known = decode_batch(batch)
        if known is None:
            raise ValueError("a session is written without its state")
        await write_session(self._topic.partitions[self._own(index)], self._call.session, known, decode_batch(seen))
        return None, b""

    async def forget_session(self) -> _Answer:
        seen = decode_batch(self._call.more["seen"])
        if seen is None:
            raise ValueError("a session is forgotten that nobody knows")
        partition = self._topic.partitions[self._own(self._call.more["index"])]
        await forget_session(partition, self._call.session, seen, self._node.clock())
        return None, b""

    async def list(self) -> _Answer:
        producer, session = self._call.more["after"]
        count = min(int(self._call.more["count"]), self._node.settings.http_items_max + 1)
        finding = page_of_sessions(self._topic, self._indexes, count, (str(producer), str(session)))
        found = await self._node.turns.finish(finding)
        return [[*place, encode_batch(batch)] for place, batch in found], b""

    async def stage(self) -> _Answer:
        index, named = self._own(self._call.more["index"]), self._call.more["named_tablet"]
        rows = RowsToStage(index, memoryview(self._body), None if named is None else int(named))
        piece = await self._staged.stage(self._fence(), rows)
        return piece.name, b""

    async def decisions(self) -> _Answer:
        found = await self._staged.decisions(self._call.session or None)
        return None, await asyncio.to_thread(encode_decisions, found)

    async def missing(self) -> _Answer:
        found = await self._staged.missing(self._fence(), await self._pieces())
        return None, await asyncio.to_thread(encode_pieces, found)

    async def verify(self) -> _Answer:
        return await self._staged.verify(self._fence(), await self._pieces(), self._until()), b""

    async def write(self) -> _Answer:
        leaves_out = bool(self._call.more["leaves_out"])
        return await self._staged.write(self._fence(), await self._pieces(), self._until(), leaves_out=leaves_out), b""

    async def decide(self) -> _Answer:
        await self._staged.decide(await self._decision())
        return None, b""

    async def retract(self) -> _Answer:
        await self._staged.retract(await self._decision())
        return None, b""

    async def end(self) -> _Answer:
        await self._staged.end(await self._decision())
        return None, b""

    async def clear(self) -> _Answer:
        await self._staged.clear(self._fence())
        return None, b""

    async def forget(self) -> _Answer:
        decided = await asyncio.to_thread(decode_decisions, self._body)
        await self._staged.forget(int(self._call.more["before_ms"]), decided)
        return None, b""

    def _fence(self) -> Fence:
        return Fence(self._call.session, int(self._call.more["sequence"]))

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + float(self._call.more["left_s"])

    def _own(self, index: Any) -> int:
        """Return a partition that the call is about. ValueError."""
        if not isinstance(index, int) or index not in self._owned:
            raise ValueError(f"partition {index!r} is none of the cells of the call")
        return index

    async def _pieces(self) -> Sequence[Piece]:
        pieces = await asyncio.to_thread(decode_pieces, self._body)
        for index in {piece.partition for piece in pieces}:
            self._own(index)
        return pieces

    async def _decision(self) -> Decision:
        (decision,) = await asyncio.to_thread(decode_decisions, self._body)
        self._own(decision.home)
        return decision


_WORKS: Final[Mapping[SessionWork, Callable[[_Work], Awaitable[_Answer]]]] = {
    SessionWork.TAKEN: _Work.taken,
    SessionWork.WRITE_SESSION: _Work.write_session,
    SessionWork.FORGET_SESSION: _Work.forget_session,
    SessionWork.LIST: _Work.list,
    SessionWork.STAGE: _Work.stage,
    SessionWork.DECISIONS: _Work.decisions,
    SessionWork.MISSING: _Work.missing,
    SessionWork.VERIFY: _Work.verify,
    SessionWork.WRITE: _Work.write,
    SessionWork.DECIDE: _Work.decide,
    SessionWork.RETRACT: _Work.retract,
    SessionWork.END: _Work.end,
    SessionWork.CLEAR: _Work.clear,
    SessionWork.FORGET: _Work.forget,
}

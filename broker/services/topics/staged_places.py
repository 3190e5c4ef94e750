"""Partitions of one topic with what is staged in them, by the node that runs them: what the commit of a batch does in
each. Pieces are looked at, read and written where they are; only their names go from node to node."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from pqbroker.broker.services.topics.partitions import check_batch
from pqbroker.broker.services.topics.record_checks import weigh
from pqbroker.pq.log.sessions import Fence, SessionBatch
from pqbroker.pq.log.staged_rows import Decision, Piece, batch_of, total_of
from pqbroker.pq.serving.joint_write import batches_taken
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.store_refusals import not_leader
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.record_parts import decode_parts
from pqbroker.storage.engine import BlobCorrupt, BlobMissing
from pqbroker.storage.unreadable import StoredUnreadable

PIECES_MAX: Final = 20_000
"""Pieces of one batch, and pieces that one tablet holds."""
_AT_ONCE: Final = 500
"""Pieces that are looked at in one turn of the loop."""


class BatchRefused(Exception):
    """A refusal: a code for programs; cause and cure for people."""

    def __init__(self, code: str, message: str, cure: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cure = cure


class PieceUnreadable(Exception):
    """A piece whose rows are damaged; `cause` for people."""

    def __init__(self, piece: Piece, cause: str) -> None:
        super().__init__(piece.name)
        self.piece = piece
        self.cause = cause


class RowsToStage(NamedTuple):
    """A batch of rows for a partition, by its index. `named_tablet`: the tablet that the rows say they are for."""

    partition: int
    batch: memoryview
    named_tablet: int | None


class StagedPlace(Protocol):
    """The partitions of a topic that one node runs. KafkaError as a write's; `until` is a time of the loop."""

    async def stage(self, fence: Fence, rows: RowsToStage) -> Piece:
        """Keep rows for a batch; durable when this returns. BatchRefused STAGE_FULL."""

    async def decisions(self, session: str | None) -> Sequence[Decision]:
        """Return the batches that are being written, of a session or of all."""

    async def taken(self, session: str) -> Mapping[int, SessionBatch]:
        """Return the last batch of a session in each partition that knows it."""

    async def missing(self, fence: Fence, pieces: Sequence[Piece]) -> Sequence[Piece]:
        """Return those of the pieces that are not there."""

    async def verify(self, fence: Fence, pieces: Sequence[Piece], until: float) -> bool:
        """Read the pieces once that were staged before a start; False when the time came before that.
        PieceUnreadable."""

    async def write(self, fence: Fence, pieces: Sequence[Piece], until: float, *, leaves_out: bool) -> bool:
        """Write the pieces of each partition, in their order; False when the time came before that. PieceUnreadable,
        unless such a one `leaves_out` its rows."""

    async def decide(self, decision: Decision) -> None:
        """Store a decision, whose home is here."""

    async def retract(self, decision: Decision) -> None:
        """Delete a decision that is not carried out."""

    async def end(self, decision: Decision) -> None:
        """Have the session know its batch, and delete the decision: all pieces are written."""

    async def clear(self, fence: Fence) -> None:
        """Delete what is staged for the session's batches up to this one."""

    async def forget(self, before_ms: int, decided: Sequence[Decision]) -> None:
        """Delete pieces that were staged before a time and are none of a decided batch; those of a held cell stay, for
        the decision that names them may be among what was given up."""


class StagedHere:
    """A `StagedPlace` of this node."""

    __slots__ = ("_bytes_max", "_indexes", "_topic")

    def __init__(self, topic: Topic, indexes: Sequence[int], bytes_max: int = 0) -> None:
        """`bytes_max`: of staged rows in a partition."""
        self._topic = topic
        self._indexes = indexes
        self._bytes_max = bytes_max

    @property
    def _partitions(self) -> Sequence[PartitionServer]:
        partitions = self._topic.partitions
        return [partitions[index] for index in self._indexes]

    async def stage(self, fence: Fence, rows: RowsToStage) -> Piece:
        index, batch, named_tablet = rows
        check_batch(self._topic, batch)
        staged = self._topic.partitions[index].staged
        if staged.bytes + len(batch) > self._bytes_max:
            held = f"tablet {index} holds {staged.bytes} bytes of staged rows"
            text = f"{held}, and these would be more than pqbroker.staged.bytes.max = {self._bytes_max}"
            cure = "Commit smaller batches, raise the setting, or wait: what nobody commits goes after a day."
            raise BatchRefused("STAGE_FULL", text, cure)
        if staged.count >= PIECES_MAX:
            text = f"tablet {index} holds {staged.count} pieces of staged rows, as many as it may"
            raise BatchRefused("STAGE_FULL", text, "Stage more rows in a request, or commit what is staged.")
        total = await asyncio.to_thread(lambda: total_of(decode_parts(batch), named_tablet))
        piece = Piece(index, total, secrets.token_hex(8))
        await staged.add(piece.key(*fence[:2]), batch)
        return piece

    async def decisions(self, session: str | None) -> Sequence[Decision]:
        found: list[Decision] = []
        try:
            for partition in self._partitions:
                if not partition.is_loaded:
                    raise not_leader()
                if partition.staged.decision_count:
                    found += await partition.staged.decisions()
        except (BlobCorrupt, BlobMissing, OSError, StoredUnreadable) as damage:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"a decided batch cannot be read: {damage}") from damage
        return [one for one in found if session in (None, one.session)]

    async def taken(self, session: str) -> Mapping[int, SessionBatch]:
        return batches_taken(self._partitions, session)

    async def missing(self, fence: Fence, pieces: Sequence[Piece]) -> Sequence[Piece]:
        found = []
        for number, piece in enumerate(pieces):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            server = self._server(piece)
            if not server.is_loaded:
                raise not_leader()  # nobody knows which pieces are there
            if server.staged.size_of(piece.key(*fence[:2])) is None:
                found.append(piece)
        return found

    async def verify(self, fence: Fence, pieces: Sequence[Piece], until: float) -> bool:
        for number, piece in enumerate(pieces):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            server = self._server(piece)
            if not server.is_loaded:
                raise not_leader()
            key, staged = piece.key(*fence[:2]), server.staged
            if not staged.is_unread(key):
                continue
            if asyncio.get_running_loop().time() > until:
                return False
            with _reading(piece):
                await staged.verify(key)
        return True

    async def write(self, fence: Fence, pieces: Sequence[Piece], until: float, *, leaves_out: bool) -> bool:
        by_partition: defaultdict[int, list[Piece]] = defaultdict(list)
        for piece in pieces:
            by_partition[piece.partition].append(piece)
        writing = (self._write(fence, some, until, leaves_out=leaves_out) for some in by_partition.values())
        done = await asyncio.gather(*writing, return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome
        return all(done)

    async def _write(self, fence: Fence, pieces: Sequence[Piece], until: float, *, leaves_out: bool) -> bool:
        """Write the pieces of one partition; one that is not there any more was written."""
        server, topic = self._server(pieces[0]), self._topic
        now = asyncio.get_running_loop().time
        for number, piece in enumerate(pieces):
            if not number % _AT_ONCE:
                await asyncio.sleep(0)
            key = piece.key(*fence[:2])
            if not server.is_loaded:
                raise not_leader()  # nobody knows which pieces are there
            if server.staged.size_of(key) is None:
                continue
            if now() > until:
                return False
            try:
                with _reading(piece):
                    batch = await server.staged.read(key)
            except PieceUnreadable:
                if leaves_out:
                    continue
                raise
            weights = await asyncio.to_thread(weigh, topic, batch) if topic.keeps_facts else None
            await server.staged.write(key, batch, weights)
        return True

    async def decide(self, decision: Decision) -> None:
        await self._topic.partitions[decision.home].staged.decide(decision)

    async def retract(self, decision: Decision) -> None:
        await self._topic.partitions[decision.home].staged.retract(decision)

    async def end(self, decision: Decision) -> None:
        await self._topic.partitions[decision.home].staged.end(decision)

    async def clear(self, fence: Fence) -> None:
        for partition in self._partitions:
            if partition.staged.bytes:
                await partition.staged.drop(partition.staged.stale(*fence[:2]))

    async def forget(self, before_ms: int, decided: Sequence[Decision]) -> None:
        batches = {batch_of(one.key) for one in decided}
        for partition in self._partitions:
            if not partition.is_held:
                old = partition.staged.older_than(before_ms)
                await partition.staged.drop([key for key in old if batch_of(key) not in batches])

    def _server(self, piece: Piece) -> PartitionServer:
        server: PartitionServer = self._topic.partitions[piece.partition]
        return server


class StagedPlaces:
    """All partitions of a topic, by place."""

    def __init__(self, partitions: int, places: Sequence[tuple[StagedPlace, Sequence[int]]]) -> None:
        """`partitions`: how many there are; the first of the places has those that no other one has."""
        self.all = [place for place, _ in places]
        self._partitions = partitions
        self._places = {index: place for place, indexes in places[1:] for index in indexes}

    @classmethod
    def here(cls, topic: Topic, bytes_max: int = 0) -> "StagedPlaces":
        """Return those of a topic that this node runs alone."""
        indexes = range(len(topic.partitions))
        return cls(len(indexes), [(StagedHere(topic, indexes, bytes_max), indexes)])

    def of(self, index: int) -> StagedPlace:
        """Return the place of a partition."""
        return self._places.get(index, self.all[0])

    def split(self, pieces: Sequence[Piece]) -> Sequence[tuple[StagedPlace, Sequence[Piece]]]:
        """Return the pieces of each place that has some, leaving out those of partitions that do not exist."""
        found: dict[int, tuple[StagedPlace, list[Piece]]] = {}
        for piece in pieces:
            if piece.partition < self._partitions:
                place = self.of(piece.partition)
                found.setdefault(id(place), (place, []))[1].append(piece)
        return list(found.values())

    async def decisions(self, session: str | None) -> list[Decision]:
        """Return the batches that are being written anywhere, of a session or of all."""
        return [one for place in self.all for one in await place.decisions(session)]

    async def taken(self, session: str) -> dict[int, SessionBatch]:
        """Return the last batch of a session in each partition that knows it."""
        found: dict[int, SessionBatch] = {}
        for place in reversed(self.all):  # those here last, since others may write meanwhile
            found.update(await place.taken(session))
        return found

    async def missing(self, fence: Fence, pieces: Sequence[Piece]) -> list[Piece]:
        """Return those of the pieces that are not there."""
        found = [piece for piece in pieces if piece.partition >= self._partitions]
        for place, some in self.split(pieces):
            found += await place.missing(fence, some)
        return found

    async def verify(self, fence: Fence, pieces: Sequence[Piece], until: float) -> bool:
        """Verify the pieces, place by place, as a place does."""
        for place, some in self.split(pieces):
            if not await place.verify(fence, some, until):
                return False
        return True

    async def write(self, fence: Fence, pieces: Sequence[Piece], until: float, *, leaves_out: bool) -> bool:
        """Write the pieces at all places together, as a place does."""
        writing = (place.write(fence, some, until, leaves_out=leaves_out) for place, some in self.split(pieces))
        done = await asyncio.gather(*writing, return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, BaseException):
                raise outcome
        return all(done)

    async def clear(self, fence: Fence) -> None:
        """Delete what is staged for the session's batches up to this one."""
        for place in self.all:
            await place.clear(fence)


@contextmanager
def _reading(piece: Piece) -> Iterator[None]:
    """Read a piece. PieceUnreadable; KafkaError where the disk does not answer."""
    try:
        yield
    except (BlobCorrupt, BlobMissing) as damage:
        raise PieceUnreadable(piece, str(damage)) from damage
    except OSError as failure:
        text = f"staged rows of tablet {piece.partition} cannot be read: {failure}"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from failure

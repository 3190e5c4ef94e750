"""Facts of rows beside their records, read where their blobs' facts are: those of the head are in memory."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial

from pqbroker.pq.log.partition import Partition
from pqbroker.pq.log.row_facts import BlobFacts, RowFacts
from pqbroker.pq.reading.reader import Reader
from pqbroker.pq.serving.served_reads import read_served
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.kv.tablet import KeyValueTablet


class FactsReader:
    """The reader of one partition's facts. KafkaError CORRUPT_MESSAGE where facts are damaged,
    NOT_LEADER_OR_FOLLOWER."""

    __slots__ = ("_check_served", "_kv", "_partition", "_reader")

    def __init__(
        self, partition: Partition, kv: KeyValueTablet, reader: Reader, check_served: Callable[[], None]
    ) -> None:
        self._partition = partition
        self._kv = kv
        self._reader = reader
        self._check_served = check_served

    async def read(self, offset: int, end_offset: int) -> RowFacts:
        """Return the facts of those of the rows [offset, end_offset) that anything is known of."""
        try:
            return await read_served(self._check_served, partial(self.read_stored, offset, end_offset))
        except ValueError as damage:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"what is known of the rows is damaged: {damage}") from None

    async def read_stored(self, offset: int, end_offset: int) -> RowFacts:
        """The same, whatever the mount state is; ValueError and the store's errors as they are."""
        blobs = self._partition.facts.blobs
        first = max(bisect_right(blobs, offset, key=_offset) - 1, 0)
        chosen = blobs[first : bisect_left(blobs, end_offset, key=_offset)]
        found: RowFacts | None = None
        for blob in chosen:
            some = (await self._facts(blob)).between(offset, end_offset)
            if found is None and len(some):
                found = RowFacts(some.weight_before)
            if found is not None:
                found.extend(some)
        return found or RowFacts(0)

    async def _facts(self, blob: BlobFacts) -> RowFacts:
        held = self._partition.facts.of_head(blob)
        if held is not None:
            return held
        (buffers,) = await self._kv.read([(blob.key(self._partition.index), 0, 0)])
        return await self._reader.decode(partial(_decoded, blob, b"".join(buffers)))


def _offset(blob: BlobFacts) -> int:
    return blob.offset


def _decoded(blob: BlobFacts, stored: bytes) -> RowFacts:
    return RowFacts.decode(blob.weight_before, stored)

"""Answers of a Fetch lane where every partition could be read: packed at once, not made of the API's classes."""

from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import Final

from pqbroker.broker.kafka.apis.exchange import Output
from pqbroker.pq.log.batch_run import Batches
from pqbroker.protocol.layout import codes
from pqbroker.protocol.messages.fetch import FetchResponse, PartitionData
from pqbroker.protocol.primitives import unsigned_varint
from pqbroker.protocol.schema import is_flexible

FETCH_KEY: Final = 1

_NO_ERROR: Final = 0
_NO_REPLICA: Final = -1

Fetched = tuple[int, int, int, int, Batches]
"""Index, high watermark, last stable offset, start offset and batches of one partition."""


class FetchAnswers:
    """Answers to requests of one version about one topic, of at most 100 partitions."""

    __slots__ = ("_aborted", "_entry", "_head", "_is_flexible", "_name", "_tags", "topic")

    def __init__(self, version: int, topic: tuple[str, bytes], name: bytes, *, is_committed: bool) -> None:
        """`topic`: name and id as a request says them; `name`: as it stands in the answer; `is_committed`: the reader
        asks for committed records."""
        self.topic = topic
        flexible = self._is_flexible = is_flexible(FETCH_KEY, version)
        self._name = name
        self._head, self._entry = _layout(version)
        self._tags = b"\0" if flexible else b""
        none = 0 if flexible else -1
        self._aborted = none + 1 if is_committed else none
        """An empty list of transactions, or no list."""

    def made(self, correlation_id: int, session_id: int, fetched: Sequence[Fetched]) -> Output:
        """The framed answer, which names no topic when nothing was fetched."""
        flexible, tags, aborted, pack = self._is_flexible, self._tags, self._aborted, self._entry.pack
        output: Output = [b""]
        size, count, before = self._head.size - 4, len(fetched), self._name
        before += bytes((count + 1,)) if flexible else count.to_bytes(4, "big")
        for index, high_watermark, stable_offset, start_offset, (buffers, records_bytes, _) in fetched:
            before += pack(index, _NO_ERROR, high_watermark, stable_offset, start_offset, aborted, _NO_REPLICA)
            before += unsigned_varint(records_bytes + 1) if flexible else records_bytes.to_bytes(4, "big")
            output.append(before)
            output += buffers
            size += len(before) + records_bytes
            before = tags  # of the partition
        if flexible:
            output.append(tags * (3 if fetched else 1))  # of the last partition, the topic, the answer
            size += len(output[-1])
        topics = 1 if fetched else 0
        output[0] = self._head.pack(size, correlation_id, 0, _NO_ERROR, session_id, topics + flexible)
        return output


@cache
def _layout(version: int) -> tuple[Struct, Struct]:
    """Return the head of an answer, from the bytes of its frame to the count of topics, and a partition up to its
    records: with a count of aborted transactions before its last number."""
    tags, count = ("x", "b") if is_flexible(FETCH_KEY, version) else ("", "i")
    head = f">ii{tags}{codes(FetchResponse, version)}{count}"
    numbers = codes(PartitionData, version)
    replica = codes(PartitionData, version, after="aborted_transactions")
    return Struct(head), Struct(f">{numbers}{count}{replica}")

"""Answers of a Fetch lane where every partition could be read: packed at once, not made of the API's classes."""

from collections.abc import Sequence
from functools import cache
from struct import Struct
from typing import Final

from pqbroker.broker.kafka.apis.exchange import Output
from pqbroker.broker.kafka.apis.fetch_sessions import SessionFetch, SessionPartition
from pqbroker.pq.log.batch_run import Batches
from pqbroker.pq.reading.query import visible_ends
from pqbroker.protocol.layout import codes
from pqbroker.protocol.messages.fetch import FetchResponse, PartitionData
from pqbroker.protocol.primitives import unsigned_varint
from pqbroker.protocol.schema import is_flexible

FETCH_KEY: Final = 1

_NO_ERROR: Final = 0
_NO_REPLICA: Final = -1

PartitionRead = tuple[SessionPartition, Batches]
"""A partition that is wanted, and what was read of it."""
ANSWERED_PARTITIONS_MAX: Final = 100
"""Partitions of an answer at most: their count is one byte in flexible versions."""


class FetchAnswers:
    """Answers to requests of one version about one topic, of at most `ANSWERED_PARTITIONS_MAX` partitions."""

    __slots__ = ("_aborted", "_head", "_is_flexible", "_name", "_pack", "_tags", "topic")

    def __init__(self, version: int, topic: tuple[str, bytes], name: bytes, *, is_committed: bool) -> None:
        """`topic`: name and id as a request says them; `name`: as it stands in the answer; `is_committed`: the reader
        asks for committed records."""
        self.topic = topic
        flexible = self._is_flexible = is_flexible(FETCH_KEY, version)
        self._name = name
        self._head, entry = _layout(version)
        self._pack = entry.pack
        self._tags = b"\0" if flexible else b""
        none = 0 if flexible else -1
        self._aborted = none + 1 if is_committed else none
        """An empty list of transactions, or no list."""

    def made(self, correlation_id: int, fetch: SessionFetch, reads: Sequence[PartitionRead]) -> Output:
        """The framed answer: what was read of every partition that the session wants, if it is news there. It names no
        topic when there is none. The session notes what it sends."""
        flexible, aborted, pack, session_id = self._is_flexible, self._aborted, self._pack, fetch.session_id
        output: Output = []
        size, count, first = 0, 0, b""
        for wanted, (buffers, records_bytes, _) in reads:
            assert wanted.partition is not None
            log = wanted.partition.state
            high_watermark, stable_offset = visible_ends(log)
            start_offset = log.start_offset
            if buffers:
                if session_id:
                    fetch.session.move_to_end(wanted)
            elif fetch.is_incremental and wanted.is_known(high_watermark, start_offset):
                continue
            wanted.sent_high_watermark, wanted.sent_start_offset = high_watermark, start_offset
            entry = pack(wanted.index, _NO_ERROR, high_watermark, stable_offset, start_offset, aborted, _NO_REPLICA)
            entry += unsigned_varint(records_bytes + 1) if flexible else records_bytes.to_bytes(4, "big")
            if count:
                entry = self._tags + entry  # those of the partition before
            else:
                first = entry
            output.append(entry)
            output += buffers
            size += len(entry) + records_bytes
            count += 1
        head, tags = self._head, self._tags
        if not count:
            return [head.pack(head.size - 4 + len(tags), correlation_id, 0, _NO_ERROR, session_id, flexible) + tags]
        name = self._name + (bytes((count + 1,)) if flexible else count.to_bytes(4, "big"))
        size += head.size - 4 + len(name) + 3 * len(tags)
        output[0] = head.pack(size, correlation_id, 0, _NO_ERROR, session_id, 1 + flexible) + name + first
        if flexible:
            output.append(3 * tags)  # of the last partition, the topic, the answer
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

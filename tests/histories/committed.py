"""Committed records of what a Fetch answers, found as Kafka's clients do it."""

from collections.abc import Sequence

from pqbroker.protocol.control_records import is_abort
from pqbroker.protocol.records import TRANSACTIONAL, batches, decode_records


def committed_values(content: bytes, aborted: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], int]:
    """Return offsets and values of committed records, by the list of aborted transactions and the markers, as Kafka's
    clients do; and the offset behind the last batch, 0 where there is none. Values are numbers before a colon."""
    waiting = list(aborted)
    leaving_out: set[int] = set()
    found: list[tuple[int, int]] = []
    following = 0
    for position, header in batches(content):
        following = header.last_offset + 1
        batch = memoryview(content)[position : position + header.size_bytes]
        while waiting and waiting[0][1] <= header.last_offset:
            leaving_out.add(waiting.pop(0)[0])
        if header.is_control:
            if header.record_count and is_abort(batch):
                leaving_out.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in leaving_out):
            found += [
                (record.offset, int((record.value or b"").split(b":")[0])) for record in decode_records(batch)
            ]
    return found, following

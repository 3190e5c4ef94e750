"""Which records have to go: by age and by size, from the front, whole blobs (semantics A.11 with K.1, H7)."""

from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.body import Bodies
from pqbroker.pq.head import Head


def start_after_retention(bodies: Bodies, head: Head, end_offset: int, config: TopicConfig, now_ms: int) -> int | None:
    """The first offset to keep, None when nothing has to go.

    By age a blob goes when its newest record was written `retention.ms` ago; the head too, once all bodies went: an
    idle topic empties. By size a body goes while what remains is at least `retention.bytes`; the last blob stays.
    """
    if "delete" not in config.cleanup_policy:
        return None
    expired = _expired(bodies, config.retention_ms, now_ms)
    if expired == len(bodies) and head.blobs and 0 <= config.retention_ms <= now_ms - head.written_ms:
        return end_offset
    over = _over_size(bodies, head, config.retention_bytes)
    gone = max(expired, over)
    if gone == 0:
        return None
    if gone < len(bodies):
        return bodies.offsets[gone]
    return head.blobs[0].offset if head.blobs else end_offset


def _expired(bodies: Bodies, retention_ms: int, now_ms: int) -> int:
    """Bodies at the front that are old enough to go."""
    if retention_ms < 0:
        return 0
    count = 0
    while count < len(bodies) and bodies.created[count] + retention_ms <= now_ms:
        count += 1
    return count


def _over_size(bodies: Bodies, head: Head, retention_bytes: int) -> int:
    """Bodies at the front without which the partition still has its bytes."""
    if retention_bytes < 0:
        return 0
    left = bodies.size + head.size
    last = len(bodies) if head.blobs else len(bodies) - 1
    count = 0
    while count < last and left - bodies.sizes[count] >= retention_bytes:
        left -= bodies.sizes[count]
        count += 1
    return count

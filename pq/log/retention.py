"""Choice of the records that have to go, from the front, whole blobs (semantics A.11 with K.1, H6, H7), and why the
oldest stay.

A blob may go when its age or the partition's size says so, or, with pq.delete.when.read, when all important groups have
read it. Important groups that have not read it hold it, for as long as pq.availability.period.ms lets them.

With pq.auto.trim records go one by one (E.13): those that all important groups have read, but for the last
pq.auto.trim.retained.rows, and for those of blobs younger than pq.auto.trim.retained.ms.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from pqbroker.conf.topic import TopicConfig
from pqbroker.pq.log.body import Bodies
from pqbroker.pq.log.head import Head
from pqbroker.pq.log.partition_settings import PartitionSettings

TRIMMED_BLOBS_MAX = 5_000
"""Bodies that one cycle deletes, so that neither planning nor applying it holds the loop for long (5 ms); more take
several. A KV request would refuse to delete over 100 000 keys."""
AUTO_FLUSH_MS = 900_000
"""Rows of an ordered table go by age from its body alone (E.6). The head of an idle table counts as body after that
time, by the seed's dynamic_store_auto_flush_period."""
_EVERYTHING = 1 << 63

FirstUnread = Mapping[str, int]
"""The first offset that each important group has not read; -1 for a group without a commit."""


class Hold(Enum):
    """A reason that keeps the oldest data of a partition."""

    EMPTY = "empty"
    COMPACTED = "compacted"
    UNLIMITED = "unlimited"
    YOUNG = "young"
    SIZE = "size"
    CONSUMER = "consumer"
    LAST = "last"
    DUE = "due"


class Held(NamedTuple):
    """The reason why the oldest data still exists. `until_ms`: when time alone frees it (since 1970); None: time does
    not."""

    hold: Hold
    text: str
    until_ms: int | None = None
    groups: tuple[str, ...] = ()
    """Important groups that hold it."""


def start_after_auto_trim(
    bodies: Bodies, head: Head, bounds: tuple[int, int], config: TopicConfig, now_ms: int, first_unread: FirstUnread
) -> int | None:
    """Return the first offset to keep of a partition that begins and ends at `bounds`; None when nothing has to go."""
    start, end = bounds
    if not config.pq_auto_trim or not first_unread or "delete" not in config.cleanup_policy:
        return None
    offset = min(*first_unread.values(), end)
    if config.pq_auto_trim_retained_rows >= 0:
        offset = min(offset, end - config.pq_auto_trim_retained_rows)
    if config.pq_auto_trim_retained_ms >= 0 and offset > start:
        offset = _first_young(bodies, head, offset, now_ms - config.pq_auto_trim_retained_ms)
    return offset if offset > start else None


def _first_young(bodies: Bodies, head: Head, end: int, before_ms: int) -> int:
    """Return the first offset of the first blob before `end` that was written after a time; `end` if none was."""
    for number in range(len(bodies)):
        if bodies.offsets[number] >= end:
            return end
        if bodies.created[number] > before_ms:
            return bodies.offsets[number]
    return min(head.blobs[0].offset, end) if head.blobs and head.written_ms > before_ms else end


class _Blob(NamedTuple):
    """The oldest body, or the head as a whole."""

    end: int
    written_ms: int


def start_after_retention(
    bodies: Bodies, head: Head, end_offset: int, settings: PartitionSettings, now_ms: int, first_unread: FirstUnread
) -> int | None:
    """The first offset to keep, None when nothing has to go; of what goes, the first `TRIMMED_BLOBS_MAX` blobs.

    By age a blob goes when its newest record was written `retention.ms` ago; the head too, once all bodies went: an
    idle topic empties, an idle table not before `AUTO_FLUSH_MS`. By size a body goes while what remains is at least
    `retention.bytes`; the last blob stays.
    """
    config = settings.topic
    if "delete" not in config.cleanup_policy:
        return None
    read_to = min(first_unread.values(), default=_EVERYTHING)
    over = _over_size(bodies, head, config.retention_bytes)
    gone = 0
    while gone < min(len(bodies), TRIMMED_BLOBS_MAX):
        blob = _Blob(bodies.ends[gone], bodies.created[gone])
        if not (gone < over or _is_freed(blob, config, now_ms, read_to)) or _is_held(blob, config, now_ms, read_to):
            break
        gone += 1
    if gone < len(bodies):
        return bodies.offsets[gone] if gone else None
    if head.blobs:
        blob = _Blob(end_offset, head.written_ms)
        is_open = settings.keeps_open_head and now_ms - head.written_ms < AUTO_FLUSH_MS
        if is_open or not _is_freed(blob, config, now_ms, read_to) or _is_held(blob, config, now_ms, read_to):
            return head.blobs[0].offset if gone else None
    return end_offset if gone or head.blobs else None


def why_held(
    bodies: Bodies, head: Head, settings: PartitionSettings, now_ms: int, first_unread: FirstUnread
) -> Held:
    """Return why the oldest data was not deleted by now."""
    config = settings.topic
    if len(bodies):
        blob = _Blob(bodies.ends[0], bodies.created[0])
    elif head.blobs:
        blob = _Blob(head.blobs[-1].end, head.written_ms)
    else:
        return Held(Hold.EMPTY, "the partition holds no data")
    if "delete" not in config.cleanup_policy:
        return Held(Hold.COMPACTED, "cleanup.policy is compact: nothing goes by age or size")
    read_to = min(first_unread.values(), default=_EVERYTHING)
    is_freed = _over_size(bodies, head, config.retention_bytes) > 0 or _is_freed(blob, config, now_ms, read_to)
    if _is_held(blob, config, now_ms, read_to):
        if is_freed or config.pq_delete_when_read or config.pq_auto_trim:
            return _held_by_groups(blob, config, first_unread)
    elif is_freed and settings.keeps_open_head and not len(bodies) and now_ms - head.written_ms < AUTO_FLUSH_MS:
        return Held(Hold.YOUNG, "rows of a table stay in the head for a while", head.written_ms + AUTO_FLUSH_MS)
    elif is_freed:
        return Held(Hold.DUE, "it goes at the next check, every log.retention.check.interval.ms", now_ms)
    if config.retention_ms >= 0:
        until_ms = blob.written_ms + config.retention_ms
        return Held(Hold.YOUNG, f"retention.ms = {config.retention_ms} has not passed since it was written", until_ms)
    if config.retention_bytes < 0:
        return Held(Hold.UNLIMITED, "neither retention.ms nor retention.bytes is set: it stays for ever")
    if len(bodies) + bool(head.blobs) == 1 and bodies.size + head.size > config.retention_bytes:
        return Held(Hold.LAST, "the partition is over retention.bytes, but its last blob stays")
    return Held(Hold.SIZE, f"without it the partition would hold less than retention.bytes = {config.retention_bytes}")


def _held_by_groups(blob: _Blob, config: TopicConfig, first_unread: FirstUnread) -> Held:
    groups = tuple(sorted(group for group, offset in first_unread.items() if offset < blob.end))
    available_ms, kept_ms = config.pq_availability_period_ms, config.retention_ms
    until_ms = blob.written_ms + max(available_ms, kept_ms) if available_ms >= 0 and kept_ms >= 0 else None
    text = (
        f"important groups have not committed offset {blob.end}: {', '.join(groups)}; let them read it, take them out "
        "of pq.important.groups, or set pq.availability.period.ms"
    )
    return Held(Hold.CONSUMER, text, until_ms, groups)


def _is_freed(blob: _Blob, config: TopicConfig, now_ms: int, read_to: int) -> bool:
    """Return True if the blob's age, or its being read, lets it go."""
    if 0 <= config.retention_ms <= now_ms - blob.written_ms:
        return True
    return config.pq_delete_when_read and blob.end <= read_to < _EVERYTHING


def _is_held(blob: _Blob, config: TopicConfig, now_ms: int, read_to: int) -> bool:
    """Return True if an important group that has not read the blob may still hold it."""
    return read_to < blob.end and not 0 <= config.pq_availability_period_ms <= now_ms - blob.written_ms


def _over_size(bodies: Bodies, head: Head, retention_bytes: int) -> int:
    """Bodies at the front without which the partition still has its bytes; at most `TRIMMED_BLOBS_MAX`."""
    if retention_bytes < 0:
        return 0
    left = bodies.size + head.size
    last = len(bodies) if head.blobs else len(bodies) - 1
    last = min(last, TRIMMED_BLOBS_MAX)
    count = 0
    while count < last and left - bodies.sizes[count] >= retention_bytes:
        left -= bodies.sizes[count]
        count += 1
    return count

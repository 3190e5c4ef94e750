"""Outlook of a partition that is cleaned: the last pass, the one under way, the next one and its reason; cleaning on
command."""

from collections.abc import Sequence
from typing import Any

from pqbroker.broker.services.cleaning.callers import CleaningCaller, CleaningNode
from pqbroker.broker.services.cleaning.cleanable import may_be_cleaned
from pqbroker.broker.services.cleaning.cleaner import due_of
from pqbroker.broker.services.topics.partitions import find_partition, needs_keys
from pqbroker.pq.log.cleaning_windows import Dirt, Due, WindowLimits, windows
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.errors import ErrorCode, KafkaError

NEVER_MS = (1 << 63) - 1


def describe_cleaning(node: CleaningNode, topic: Topic, server: PartitionServer) -> dict[str, Any] | None:
    """Return a partition's past, present and next cleaning as they are shown; None: its topic is not compacted."""
    if not needs_keys(topic):
        return None
    cleaner, now_ms = node.cleaner, node.clock()
    place = topic.record.topic_id, server.index
    due, cleaned = due_of(topic, server, now_ms), server.state.cleaned
    running, last = cleaner.running.get(place), cleaner.history.last_of(*place)
    state, text, next_ms = _outlook(node, topic, server, due)
    return {
        "state": state, "reason": due.reason.value, "text": text, "next": next_ms,
        "dirty_ratio": round(due.dirty_ratio, 4), "dirty_bytes": due.dirty_bytes, "size_bytes": due.bytes,
        "bodies": due.body_count, "end_offset": due.bound, "cleaned_to": cleaned.end if cleaned.ended_ms else None,
        "cleaned": cleaned.ended_ms or None, "tombstones_due": cleaned.due_ms,
        "running": None if running is None else running.document(now_ms),
        "last": None if last is None else last.document(now_ms),
    }  # fmt: skip


def ask_for_cleaning(
    caller: CleaningCaller, topic: Topic, partitions: Sequence[int] | None, *, is_dry: bool
) -> list[dict[str, Any]]:
    """Have partitions of a topic cleaned soon, all of them where none are named; return of each what a pass goes
    through. `is_dry`: nothing is begun. Records in the head go to a body first.

    KafkaError INVALID_REQUEST for a topic that is not compacted and for a cleaner that is off,
    UNKNOWN_TOPIC_OR_PARTITION.
    """
    node = caller.node
    if not needs_keys(topic):
        text = f"topic {topic.record.name} is not compacted: its cleanup.policy does not name `compact`"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if not is_dry and (why := _why_off(node)):
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    indexes = range(len(topic.partitions)) if partitions is None else sorted(set(partitions))
    servers = [find_partition(topic, index) for index in indexes]
    now_ms = node.clock()
    asked = []
    for server in servers:
        due = due_of(topic, server, now_ms, is_forced=True)
        is_taken = may_be_cleaned(server) and (due.is_due or bool(server.state.head.blobs))
        if is_taken and not is_dry:
            node.cleaner.force(topic, server)
        count = len(windows(server.state.bodies, due.body_count, WindowLimits()))
        asked.append({
            "partition": server.index, "is_cleaned": is_taken, "bodies": due.body_count, "windows": count,
            "size_bytes": due.bytes, "dirty_bytes": due.dirty_bytes, "dirty_ratio": round(due.dirty_ratio, 4),
            "head_bytes": server.state.head.size,
            "text": _why_not(server, due) if not is_taken else "",
        })  # fmt: skip
    return asked


def _why_off(node: CleaningNode) -> str:
    settings = node.settings
    if not settings.cleaner_enable:
        return "the cleaner is off: log.cleaner.enable is false; start the broker with true"
    if not settings.cleaner_threads:
        return "the cleaner is off: log.cleaner.threads is 0"
    return ""


def _why_not(server: PartitionServer, due: Due) -> str:
    if server.is_held:
        return "its cell was salvaged: nothing is deleted before the losses are accepted"
    if not may_be_cleaned(server):
        return "it is frozen, unmounted, or not served now"
    if len(server.state.bodies):
        return "all its records are younger than min.compaction.lag.ms, or behind the last stable offset"
    return "it holds no records"


def _outlook(
    node: CleaningNode, topic: Topic, server: PartitionServer, due: Due
) -> tuple[str, str, int | None]:
    """Return a word and a sentence for what becomes of a partition next, and the time when time alone has it cleaned
    (milliseconds since 1970; None: it does not)."""
    cleaner, config = node.cleaner, topic.config
    place = topic.record.topic_id, server.index
    if place in cleaner.running:
        return "cleaning", "a pass goes over it", None
    if why := _why_off(node):
        return "off", why, None
    if not may_be_cleaned(server):
        return "held", _why_not(server, due), None
    failed = cleaner.failed.get(place)
    if failed is not None:
        return "failed", f"the last pass failed: {failed.text}", failed.until_ms
    if due.is_due or cleaner.is_forced(topic, server):
        return "due", "it is cleaned at one of the next looks, every log.cleaner.backoff.ms", node.clock()
    bodies, cleaned = server.state.bodies, server.state.cleaned
    if due.reason is Dirt.YOUNG:
        until_ms = bodies.created[due.body_count] + config.min_compaction_lag_ms
        return "waiting", "its new records are younger than min.compaction.lag.ms", until_ms
    if due.reason is Dirt.BELOW_RATIO:
        least = config.min_cleanable_dirty_ratio
        text = f"of its bytes {due.dirty_ratio:.0%} are new; a pass begins above min.cleanable.dirty.ratio, {least:.0%}"
        late_ms = bodies.created[bodies.find(cleaned.end)] + config.max_compaction_lag_ms
        times = [late_ms if late_ms < NEVER_MS else None, cleaned.due_ms]
        return "waiting", text, min((each for each in times if each is not None), default=None)
    return "clean", "nothing was written since the last pass, but for what is in the head", cleaned.due_ms

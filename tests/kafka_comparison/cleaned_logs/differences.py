"""Differences between a log that Kafka's cleaner left and ours that stay, each with its reason, as changes of Kafka's.

Base timestamps are not compared: Kafka counts times from the first record that is left; here a batch that loses records
keeps its base, so that the bytes of those that stay are copied and not made again. A reader sees the same times.
"""

from collections.abc import Sequence

from tests.kafka_comparison.cleaned_logs.playing import LeftBatch, Stage
from tests.kafka_comparison.cleaned_logs.scripts import AT_ONCE, T0_MS, Script


def expected(script: Script, theirs: Sequence[Stage]) -> list[Stage]:
    """Return what our cleaner should leave, by what Kafka's has left."""
    is_at_once = AT_ONCE.items() <= script.configs.items()
    return [stage._replace(left=_changed(stage.left, is_at_once=is_at_once)) for stage in theirs]


def _changed(left: Sequence[LeftBatch], *, is_at_once: bool) -> list[LeftBatch]:
    # Kafka removes a tombstone in the first cleaning after its time, and cleans for new records alone. Here tombstones
    # whose time has come are a reason to clean.
    changed = [_without_tombstones(batch) if is_at_once and batch.flags else batch for batch in left]
    # Kafka keeps the last batch of each producer for its sequences, without records if need be: a start reads them from
    # the log. Here they are keys of their own. The last offset stays in a batch here.
    return [batch if batch.records else _emptied(batch) for batch in changed if batch.records or batch is changed[-1]]


def _without_tombstones(batch: LeftBatch) -> LeftBatch:
    records = [record for record in batch.records if record[3] is not None]
    return batch._replace(records=records, max_time=max((record[1] for record in records), default=-1))


def _emptied(batch: LeftBatch) -> LeftBatch:
    return batch._replace(codec=0, flags="", max_time=-1 - T0_MS, records=[])

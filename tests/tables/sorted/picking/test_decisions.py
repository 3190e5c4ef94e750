"""Decisions about each chunk of a tablet: the task that takes it, or what keeps it out."""

from typing import Any

import pytest

from pqbroker.tables.sorted.picking.choice import LeftOut, PickReason
from pqbroker.tables.sorted.picking.decisions import ChunkDecision, decisions
from pqbroker.tables.sorted.picking.survey import TaskKind, survey
from tests.tables.sorted.picking.stores import DAY, GIB, MIB, NOW, chunk, chunks, tablet

pytestmark = pytest.mark.spec("C.5", "C.7")


def test_each_chunk_has_a_task_or_a_reason() -> None:
    whole = tablet(chunks(MIB, MIB, MIB, GIB), eden=[chunk(20, 80 * MIB), chunk(21, MIB)])
    found = decisions(survey(whole, NOW))
    assert found.keys() == {1, 2, 3, 4, 20, 21}
    assert found[1] == ChunkDecision(TaskKind.COMPACTION, PickReason.REGULAR)
    assert found[4] == ChunkDecision(left_out={TaskKind.COMPACTION: LeftOut.SIZE})
    in_eden = found[20]
    assert (in_eden.kind, in_eden.reason) == (TaskKind.PARTITIONING, PickReason.REGULAR)
    assert in_eden.left_out == {TaskKind.COMPACTION: LeftOut.BUSY}


def test_a_chunk_of_eden_may_be_left_out_for_two_reasons() -> None:
    (found,) = decisions(survey(tablet([], eden=[chunk(1, MIB)]), NOW)).values()
    assert found.kind is None
    assert found.left_out == {TaskKind.PARTITIONING: LeftOut.SIZE, TaskKind.COMPACTION: LeftOut.SIZE}


def test_chunks_that_are_dropped_unread_are_discarded() -> None:
    aged: dict[str, Any] = {"min_data_versions": 0, "min_data_ttl": 0, "max_data_ttl": DAY}
    found = decisions(survey(tablet([chunk(1, MIB)], **aged), NOW + 2 * DAY))
    assert found == {1: ChunkDecision(TaskKind.DISCARD, PickReason.EXPIRED)}

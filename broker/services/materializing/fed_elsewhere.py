"""Topics and tables of materializations that another node runs, as the first node asks it.

    spans     where partitions stand                     slice   records of one partition
    progress  what the first tablet of the table keeps   write   rows with progress, all for tablets of that node
    letters   a batch of dead letters for a topic

What the other node refuses is refused here by the same code; an answer that is lost is asked for again, since progress
moves only from where it stood.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.services.materializing.fed_partitions import FedSlice, FedSpan
from pqbroker.broker.services.materializing.fed_table import home_elsewhere
from pqbroker.broker.services.materializing.feeding import NOTHING_ELSEWHERE, PartsElsewhere
from pqbroker.broker.services.tables.callers import TablesNode
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.tablets.scheme_materializations import MaterializationRecord
from pqbroker.tables.refusals import TableError
from pqbroker.tables.serving.feed_progress import FeedMove, FeedProgress, RunLetters
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.sorted.fed_rows import encode_fed_rows
from pqbroker.tables.sorted.log_entries import NewRow

_SILENT: Final = "It continues by itself; `pqbroker cell list` shows the cells of each node."


class FedWork(StrEnum):
    """Work on a materialization that is asked of the node which runs a part of it."""

    SPANS = "spans"
    SLICE = "slice"
    PROGRESS = "progress"
    WRITE = "write"
    LETTERS = "letters"


async def look_elsewhere(
    node: TablesNode, topic: Topic | None, table: SortedTable, record: MaterializationRecord
) -> PartsElsewhere:
    """Return the parts of a materialization that other nodes run, at the first node. `topic` None: it was deleted.
    TableError NODE_SILENT and others; KafkaError NOT_LEADER_OR_FOLLOWER while no node runs a partition."""
    if node.others() is None:
        return NOTHING_ELSEWHERE
    by_node = {} if topic is None else node.leaders.by_number(topic)
    by_node.pop(node.leaders.number, None)
    spans = list[FedSpan]()
    for number, indexes in by_node.items():
        assert topic is not None
        spans += await FedElsewhere(node, number).spans(topic, indexes)
    home = home_elsewhere(node, table)
    return PartsElsewhere(spans, None if home is None else await FedElsewhere(node, home).progress(table, record.run))


class FedElsewhere:
    """Another node, by its number. What is asked raises TableError, NODE_SILENT among others."""

    def __init__(self, node: TablesNode, number: int) -> None:
        self._node = node
        self._number = number

    async def spans(self, topic: Topic, partitions: Sequence[int]) -> list[FedSpan]:
        """Return where partitions stand."""
        told, _ = await self._ask(FedWork.SPANS, {"topic": topic.record.topic_id.hex(), "partitions": partitions})
        try:
            spans = [FedSpan(int(index), int(start), int(end)) for index, start, end in told["spans"]]
        except (LookupError, TypeError, ValueError):
            raise self._unknown() from None
        if [span.partition for span in spans] != list(partitions):
            raise self._unknown()
        return spans

    async def slice(self, topic: Topic, partition: int, start: int) -> FedSlice:
        """Return records of a partition from an offset on."""
        asked = {"topic": topic.record.topic_id.hex(), "partition": partition, "start": start}
        told, records = await self._ask(FedWork.SLICE, asked)
        try:
            aborted = [[int(number) for number in span] for span in told["aborted"]]
            return FedSlice(int(told["end"]), aborted, [records])
        except (LookupError, TypeError, ValueError):
            raise self._unknown() from None

    async def progress(self, table: SortedTable, run: bytes) -> FeedProgress:
        """Return the progress of a run."""
        told, _ = await self._ask(FedWork.PROGRESS, {"table": table.record.table_id.hex(), "run": run.hex()})
        try:
            offsets = {int(partition): int(offset) for partition, offset in told["offsets"]}
            return FeedProgress.of_run(run, offsets, msgspec.convert(told["letters"], RunLetters))
        except (LookupError, TypeError, ValueError):  # what msgspec raises is a ValueError
            raise self._unknown() from None

    async def write(self, table: SortedTable, by_tablet: Mapping[int, Sequence[NewRow]], move: FeedMove) -> None:
        """Write rows and progress as one commit there."""
        asked = {
            "table": table.record.table_id.hex(), "columns": [*table.record.columns],
            "tablets": [[table.record.tablets[index], len(rows)] for index, rows in by_tablet.items()],
            "move": [
                move.run.hex(), move.partition, move.start, move.end,
                None if move.letters is None else msgspec.to_builtins(move.letters),
            ],
        }  # fmt: skip
        body = b"".join(encode_fed_rows(rows) for rows in by_tablet.values())
        await self._ask(FedWork.WRITE, asked, body)

    async def letters(self, topic: Topic, batch: memoryview) -> None:
        """Write a batch of dead letters to the first partition of a topic there."""
        await self._ask(FedWork.LETTERS, {"topic": topic.record.topic_id.hex()}, bytes(batch))

    async def _ask(self, work: FedWork, asked: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        others = self._node.others()
        assert others is not None, "only the first node feeds tables"
        try:
            told, answered = await others.ask_web(self._number, {"feed": work.value, **asked}, body)
        except NodeSilent as silent:
            raise TableError("NODE_SILENT", str(silent), _SILENT) from None
        if not isinstance(told, dict):
            raise self._unknown()
        if "refused" in told:
            try:
                code, message, cure = map(str, told["refused"])
            except (TypeError, ValueError):
                raise self._unknown() from None
            raise TableError(code, f"node {self._number}: {message}", cure)
        return told, answered

    def _unknown(self) -> TableError:
        text = f"node {self._number} sent no answer that this version knows"
        return TableError("NODE_SILENT", text, "Restart the nodes: `pqbroker cluster restart` does so one by one.")

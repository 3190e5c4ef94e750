"""Insides of sorted tables over HTTP: stores, partitions, chunks, tasks, and what keeps each from being compacted."""

from collections.abc import Sequence
from heapq import nsmallest
from typing import Any, Final

from pqbroker.broker.services.sorted_tables.explaining import WaitingTask
from pqbroker.broker.services.sorted_tables.inside import (
    SurveyedTablet,
    explain,
    find_inside,
    rests_of,
    survey_tablet,
)
from pqbroker.broker.services.tables.finding import TabletRange
from pqbroker.broker.web.routing.routes import Call
from pqbroker.broker.web.tables import sorted_sums
from pqbroker.broker.web.tables.routes import COMPACTION, INSIDE_OF_TABLE
from pqbroker.broker.web.tables.sorted_showing import sorted_facts
from pqbroker.tables.serving.background import Background
from pqbroker.tables.serving.open_chunk import OpenChunk
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.serving.tasks import MERGE, SPLIT, amplification_of
from pqbroker.tables.sorted.picking.balancing import PartitionMerge, PartitionSplit
from pqbroker.tables.sorted.picking.choice import Choice
from pqbroker.tables.sorted.picking.facts import partition_of
from pqbroker.tables.sorted.picking.rotation import TABLE_PART
from pqbroker.tables.sorted.picking.survey import TaskKind
from pqbroker.tables.sorted.pivots import show_pivot
from pqbroker.tables.sorted.schema import SortedSchema
from pqbroker.tables.sorted.store import RowStore
from pqbroker.tables.sorted.write_refusals import YT_NUMBERS

KEY_CHARACTERS_MAX: Final = 100
"""Characters of a key's string that are shown."""
ORDER_BYTES_MAX: Final = 64
"""First bytes of an encoded key, by which keys of different chunks are compared."""
INPUTS_SHOWN: Final = 100
"""Chunks that are named of a task's inputs: a periodic one of a whole partition has more."""


async def inside(call: Call) -> Any:
    """Return what happens in a table, with a page of its tablets."""
    table, background = find_inside(call, call.path["name"])
    indexes = range(call.query.get("after", -1) + 1, len(table.tablets))
    page, has_more = call.page(indexes)
    tablets = []
    for index in page:
        tablets.append(_shown_tablet(table, index, background))
        await call.node.turns.breathe()
    now_ms, history = call.node.clock(), background.history
    running = [task.document(now_ms) for task in history.running.values() if task.table == table.record.name]
    ended = [task.document(now_ms) for task in reversed(history.ended) if task.table == table.record.name]
    own = {
        **sorted_facts(table),
        "node": _node(call, table, background),
        **amplification_of(tablet.totals for tablet in table.tablets),
        "running": running, "ended": ended, "tablets": tablets, "next": page[-1] if has_more else None,
    }  # fmt: skip
    told = await sorted_sums.ask_others(call, INSIDE_OF_TABLE, table, page, sorted_sums.page_query(page))
    theirs = {node: answer.get("tablets") for node, answer in told.items()}
    return sorted_sums.whole_inside(own, told) | {"tablets": sorted_sums.placed(call, table, tablets, theirs)}


async def tablet_inside(call: Call) -> Any:
    """Return what happens in one tablet, with pages of its partitions and chunks."""
    table, background = find_inside(call, call.path["name"])
    surveyed = await survey_tablet(call, table, call.path["tablet"])
    partitions, next_partition = await _partitions(call, table, surveyed)
    chunks, next_chunk = await _chunks(call, surveyed, background)
    seen = surveyed.seen
    return {
        **_shown_tablet(table, surveyed.tablet_index, background),
        "eden": {
            "chunk_count": len(seen.tablet.eden), "compressed_bytes": seen.tablet.eden_bytes,
            "partitioning": _choice(TaskKind.PARTITIONING, seen.partitioning),
            "compaction": _choice(TaskKind.COMPACTION, seen.eden),
        },
        "partitions": partitions, "chunks": chunks, "next_partition": next_partition, "next": next_chunk,
    }  # fmt: skip


async def explain_compaction(call: Call) -> Any:
    """Return the tasks that a table calls for now, in order, and why others are left out."""
    table, background = find_inside(call, call.path["name"])
    tablets = TabletRange(call.query.get("first_tablet_index"), call.query.get("last_tablet_index"))
    explanation, tasks = await explain(call, table, tablets, call.limit())
    own = {
        **sorted_facts(table),
        "task_count": explanation.task_count,
        "tasks": [_waiting(table, order, task) for order, task in enumerate(tasks, 1)],
        "balance": [
            *(_split(table, index, split) for index, split in explanation.splits),
            *(_merge(table, index, merge) for index, merge in explanation.merges),
        ],
        "left_out": [
            {
                "kind": str(kind), "reason": str(why), "chunk_count": chunks.chunk_count,
                "examples": [{"tablet_index": index, "chunk": number} for index, number in chunks.examples],
            }
            for (kind, why), chunks in explanation.left_out.items()
        ],
        "rests": [{"reason": why, "tablet_indexes": indexes} for why, indexes in explanation.rests.items()],
        "node_tasks": _node_tasks(background),
    }  # fmt: skip
    among = tablets.among(table.record.name, len(table.tablets))
    told = await sorted_sums.ask_others(call, COMPACTION, table, among, call.query)
    return sorted_sums.whole_explanation(own, told, call.limit())


def _node(call: Call, table: SortedTable, background: Background) -> dict[str, Any]:
    share = call.node.cell.current.sorted_tables.share
    limit, workers = share.settings.stores_bytes_max, share.used_workers
    return {
        "stores_bytes": share.stores_bytes,
        "stores_bytes_max": limit,
        "table_stores_bytes": sum(tablet.memory_bytes for tablet in table.tablets),
        "table_stores_bytes_max": int(limit * TABLE_PART),
        "workers": 0 if workers is None else len(workers.pids),
        "workers_busy": 0 if workers is None else workers.running,
        "tasks": _node_tasks(background),
    }


def _node_tasks(background: Background) -> dict[str, dict[str, int]]:
    return {kind: {"running": count, "most": most} for kind, (count, most) in background.running_by_kind().items()}


def _shown_tablet(table: SortedTable, index: int, background: Background) -> dict[str, Any]:
    record, tablet = table.record, table.tablets[index]
    structure, attributes = tablet.structure, tablet.config.attributes
    chunks = [chunk.record for chunk in structure.chunks.values()]
    most = structure.most
    return {
        "index": index,
        "tablet_id": record.tablets[index],
        "state": table.state_of(index).value,
        "pivot_key": show_short_key(table.schema, record.pivots[index]),
        "stores": _stores(tablet),
        "partition_count": len(structure.pivots),
        "chunk_count": len(chunks),
        "eden_chunk_count": len(structure.eden),
        "rows": sum(chunk.rows for chunk in chunks),
        "deletes": sum(chunk.deletes for chunk in chunks),
        "compressed_bytes": sum(chunk.size for chunk in chunks),
        "uncompressed_bytes": sum(chunk.unpacked_bytes for chunk in chunks),
        "overlap": most.count,
        "overlap_max": attributes.max_overlapping_store_count,
        "overlap_key": show_short_key(table.schema, most.key) if most.count else None,
        "retained_timestamp": tablet.facts.retained_timestamp,
        "prepared_count": len(tablet.transactions.prepared),
        "locked_keys": tablet.transactions.locked_count,
        "blocked": _blocked(table, index),
        "flush_failure": _flush_failure(tablet, background),
        "rests": rests_of(table, index),
        **amplification_of([tablet.totals]),
    }


def _stores(tablet: SortedTablet) -> list[dict[str, Any]]:
    """Return the stores in memory, the active one first, then the oldest."""
    now_ms = tablet.share.time.clock()
    if not tablet.stores:
        return []
    ordered = [(tablet.active, "active"), *((store, "passive") for store in tablet.passive)]
    return [_store(store, state, now_ms) for store, state in ordered]


def _store(store: RowStore, state: str, now_ms: int) -> dict[str, Any]:
    return {
        "store": store.number, "state": state, "keys": store.key_count, "rows": store.row_count,
        "bytes": store.memory_bytes, "begun_ms": store.begun_ms, "age_ms": max(now_ms - store.begun_ms, 0),
        "least_timestamp": store.least_timestamp, "passive_for": str(store.passive_for),
    }  # fmt: skip


def _blocked(table: SortedTable, index: int) -> dict[str, Any] | None:
    """Return what blocks the writes of a tablet that would take some."""
    tablet = table.tablets[index]
    if table.is_frozen(index) or not tablet.is_serving or (refusal := tablet.write_block) is None:
        return None
    return {
        "code": refusal.code, "number": YT_NUMBERS.get(refusal.code), "message": refusal.message, "cure": refusal.cure
    }


def _flush_failure(tablet: SortedTablet, background: Background) -> dict[str, Any] | None:
    cause = background.failures.get(tablet)
    return None if cause is None else {"cause": cause, "retry_ms": background.retry_ms(tablet)}


async def _partitions(
    call: Call, table: SortedTable, surveyed: SurveyedTablet
) -> tuple[Sequence[dict[str, Any]], int | None]:
    """Return a page of partitions, and the last one of it if there are more."""
    seen = surveyed.seen
    page, has_more = call.page(range(call.query.get("after_partition", -1) + 1, len(seen.tablet.partitions)))
    shown = []
    for index in page:
        partition, overlap = seen.tablet.partitions[index], seen.overlaps[index]
        kind = TaskKind.DISCARD if index in seen.expired else TaskKind.COMPACTION
        shown.append({
            "index": index,
            "pivot_key": show_short_key(table.schema, partition.pivot),
            "order": _order(partition.pivot),
            "chunk_count": len(partition.chunks),
            "compressed_bytes": partition.compressed_bytes,
            "overlap": overlap.count,
            "overlap_key": show_short_key(table.schema, overlap.key) if overlap.count else None,
            "backoff_until_ms": partition.backoff_until_ms or None,
            "task": _choice(kind, seen.partitions[index]),
        })  # fmt: skip
        await call.node.turns.breathe()
    return shown, page[-1] if has_more else None


def _choice(kind: TaskKind, choice: Choice) -> dict[str, Any] | None:
    """Return the task that a place calls for; None: it calls for none."""
    if not choice.inputs:
        return None
    return {
        "kind": str(kind), "reason": str(choice.reason), "inputs": list(choice.numbers[:INPUTS_SHOWN]),
        "input_count": len(choice.numbers), "compressed_bytes": choice.compressed_bytes,
    }  # fmt: skip


async def _chunks(
    call: Call, surveyed: SurveyedTablet, background: Background
) -> tuple[Sequence[dict[str, Any]], int | None]:
    """Return a page of chunks by number, and the last one of it if there are more."""
    tablet, after = surveyed.tablet, call.query.get("after", -1)
    limit = call.limit()
    known = tablet.structure.chunks
    numbers = nsmallest(limit + 1, (number for number in known if number > after))
    page, has_more = call.page(numbers)
    running = _running(tablet, background)
    shown = []
    for number in page:
        await call.node.turns.breathe()
        chunk = tablet.structure.chunks.get(number)
        if chunk is not None:  # it has gone meanwhile
            shown.append(_chunk(surveyed, chunk, running.get(number)))
    return shown, page[-1] if has_more else None


def _running(tablet: SortedTablet, background: Background) -> dict[int, dict[str, Any]]:
    """Return the task under way that reads a chunk, by the chunk."""
    tablet_id, kinds = tablet.config.tablet_id, set(TaskKind)
    return {
        number: {"task": task.number, "kind": task.kind, "reason": task.reason}
        for task in background.history.running.values()
        if task.tablet_id == tablet_id and task.kind in kinds
        for number in task.inputs
    }


def _chunk(surveyed: SurveyedTablet, chunk: OpenChunk, task: dict[str, Any] | None) -> dict[str, Any]:
    tablet, record = surveyed.tablet, chunk.record
    schema, structure = tablet.config.schema, tablet.structure
    now_ms = tablet.share.time.clock()
    decision = surveyed.decisions.get(chunk.number)
    picked = None
    if decision is not None and decision.kind is not None:
        picked = {"kind": str(decision.kind), "reason": str(decision.reason)}
    return {
        "chunk": chunk.number,
        "partition_index": partition_of(chunk.first_key, chunk.last_key, structure.pivots, structure.end),
        "state": _state(chunk, now_ms),
        "first_key": show_short_key(schema, chunk.first_key), "last_key": show_short_key(schema, chunk.last_key),
        "first_order": _order(chunk.first_key), "last_order": _order(chunk.last_key),
        "keys": record.keys, "rows": record.rows, "deletes": record.deletes,
        "compressed_bytes": record.size, "uncompressed_bytes": record.unpacked_bytes,
        "least_timestamp": record.least_timestamp, "greatest_timestamp": record.greatest_timestamp,
        "created_ms": record.created_ms, "age_ms": max(now_ms - record.created_ms, 0), "revision": record.revision,
        "retry_ms": chunk.backoff_until_ms if now_ms < chunk.backoff_until_ms else None,
        "preload": str(chunk.preload),
        "task": task,
        "picked": picked,
        "left_out": {} if decision is None else {str(kind): str(why) for kind, why in decision.left_out.items()},
    }  # fmt: skip


def _state(chunk: OpenChunk, now_ms: int) -> str:
    if chunk.is_damaged:
        return "damaged"
    if chunk.is_busy:
        return "busy"
    return "backing off" if now_ms < chunk.backoff_until_ms else "idle"


def _waiting(table: SortedTable, order: int, waiting: WaitingTask) -> dict[str, Any]:
    task = waiting.task
    pivot = None if task.partition is None else show_short_key(table.schema, task.partition.pivot)
    shown = _choice(task.kind, task.choice)
    assert shown is not None, "a task has inputs"
    return {
        "order": order, "tablet_index": waiting.tablet_index, "in_eden": task.partition is None,
        "partition_pivot_key": pivot, **shown, "slack": task.slack, "effect": task.effect,
        "waits": waiting.waits,
    }  # fmt: skip


def _split(table: SortedTable, index: int, split: PartitionSplit) -> dict[str, Any]:
    pivot = show_short_key(table.schema, split.partition.pivot)
    return {
        "kind": SPLIT, "tablet_index": index, "partition_pivot_key": pivot, "reason": split.reason,
        "parts_max": split.parts,
    }  # fmt: skip


def _merge(table: SortedTable, index: int, merge: PartitionMerge) -> dict[str, Any]:
    pivot = show_short_key(table.schema, merge.left.pivot)
    return {
        "kind": MERGE, "tablet_index": index, "partition_pivot_key": pivot, "reason": merge.reason, "parts_max": 1
    }


def show_short_key(schema: SortedSchema, key: bytes) -> list[Any]:
    """Return the values of a key, long strings cut. What was stored and is no key is shown as its bytes."""
    try:
        return [_cut(value) for value in show_pivot(schema, key)]
    except ValueError:
        return [{"bytes": _order(key)}]


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > KEY_CHARACTERS_MAX:
        return value[:KEY_CHARACTERS_MAX] + "…"
    if isinstance(value, dict):
        return {name: _cut(text) for name, text in value.items()}
    return value


def _order(key: bytes) -> str:
    """Return the beginning of an encoded key as text, which is in the order of the keys."""
    return key[:ORDER_BYTES_MAX].hex()

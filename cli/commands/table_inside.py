"""`pqbroker table inside`, `compact` and `explain-compaction`: what happens in sorted tables, and why."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.commands.table_mount import First, Last, tablet_range
from pqbroker.cli.commands.table_rows import shown_cell
from pqbroker.cli.options import Http, Json, Table, table_path
from pqbroker.cli.output import say, show_bytes, show_json, show_table
from pqbroker.cli.parsing import option
from pqbroker.cli.web import DEFAULT_HTTP, Web

ENDED_SHOWN = 10
"""Tasks that have ended that are shown to people; --json prints all."""
INPUTS_NAMED = 8
"""Chunks of a task that are named to people."""


def add_inside(app: Family) -> None:
    """Add the commands to the family `table`."""

    @declare(app, "inside", "pqbroker table inside shop.stock --tablet 0")
    def inside(
        table: Table,
        tablet: Annotated[
            int | None,
            option("--tablet", metavar="INDEX", least=0, help="Tablet whose stores, partitions and chunks to show."),
        ] = None,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Show what happens in a sorted table: stores, chunks, tasks, and what blocks writes."""
        path = table_path(table)
        with Web(http) as web:
            found = _whole_table(web, path) if tablet is None else _whole_tablet(web, f"{path}/tablets/{tablet}")
        if json:
            show_json(found)
        elif tablet is None:
            _show_table(found)
        else:
            _show_tablet(found)


def add_compact(app: Family) -> None:
    """Add the commands that have tablets compacted, and explain what is."""

    @declare(app, "compact", "pqbroker table compact shop.stock --first 1 --last 2")
    def compact(
        table: Table,
        first: First = None,
        last: Last = None,
        agreed: Annotated[
            bool, option("--agreed", help="Compact a very large table at once, which an administrator has agreed to.")
        ] = False,
        http: Http = DEFAULT_HTTP,
        json: Json = False,
    ) -> None:
        """Have every chunk of tablets compacted once: set forced_compaction_revision and remount them."""
        path = table_path(table)
        with Web(http) as web:
            change = {"attributes": {"forced_compaction_revision": 1}, "agreed": agreed}
            changed = web.patch(path, change, "schema")
            web.post(f"{path}/remount", tablet_range(first, last), "schema")
        estimate = changed.get("estimate", "")
        revision = changed["attributes_set"]["forced_compaction_revision"]
        if json:
            show_json({"path": changed["path"], "forced_compaction_revision": revision, "estimate": estimate})
        else:
            say(f"chunks of {changed['path']} from before revision {revision} are compacted; all of it: {estimate}")

    @declare(app, "explain-compaction", "pqbroker table explain-compaction shop.stock")
    def explain_compaction(
        table: Table, first: First = None, last: Last = None, http: Http = DEFAULT_HTTP, json: Json = False
    ) -> None:
        """Show what would be compacted now, in which order and why, and what is left out."""
        with Web(http) as web:
            found = web.get(f"{table_path(table)}/compaction", "tasks", **tablet_range(first, last))
        if json:
            show_json(found)
        else:
            _show_explanation(found)


def _whole_table(web: Web, path: str) -> dict[str, Any]:
    """Return what is shown of a table, with all its tablets."""
    found = web.get(f"{path}/inside", "tablets")
    while found["next"] is not None:
        page = web.get(f"{path}/inside", "tablets", after=found["next"])
        found["tablets"] += page["tablets"]
        found["next"] = page["next"]
    del found["next"]
    return found


def _whole_tablet(web: Web, path: str) -> dict[str, Any]:
    """Return what is shown of a tablet, with all its partitions and chunks."""
    found = web.get(f"{path}/inside", "chunks")
    pages = (("chunks", "next", "after"), ("partitions", "next_partition", "after_partition"))
    for items, cursor, parameter in pages:
        while found[cursor] is not None:
            page = web.get(f"{path}/inside", items, **{parameter: found[cursor]})
            found[items] += page[items]
            found[cursor] = page[cursor]
        del found[cursor]
    return found


def _show_table(found: Mapping[str, Any]) -> None:
    node = found["node"]
    memory = f"{show_bytes(node['table_stores_bytes'])} of {show_bytes(node['table_stores_bytes_max'])}"
    of_node = f"{show_bytes(node['stores_bytes'])} of {show_bytes(node['stores_bytes_max'])}"
    say(f"sorted table {found['path']}, {found['state']}; memory of its stores {memory}, of the node {of_node}")
    say(f"  {_written(found)}")
    running = ", ".join(f"{kind} {task['running']} of {task['most']}" for kind, task in node["tasks"].items())
    say(f"  tasks of the node: {running}")
    for tablet in found["tablets"]:
        _show_troubles(tablet)
    header = ("tablet", "state", "pivot", "in_memory", "rows", "chunks", "eden", "partitions", "overlap", "size")
    rows = []
    for tablet in found["tablets"]:
        counts = [tablet[name] for name in ("rows", "chunk_count", "eden_chunk_count", "partition_count")]
        overlap = f"{tablet['overlap']} of {tablet['overlap_max']}"
        in_memory = sum(store["rows"] for store in tablet["stores"])
        pivot, size = shown_cell(tablet["pivot_key"]), show_bytes(tablet["compressed_bytes"])
        rows.append([tablet["index"], tablet["state"], pivot, in_memory, *counts, overlap, size])
    show_table(header, rows)
    _show_tasks("tasks under way", found["running"])
    _show_tasks("last tasks", found["ended"][:ENDED_SHOWN])


def _written(found: Mapping[str, Any]) -> str:
    flushed, rewritten = show_bytes(found["flushed_bytes"]), show_bytes(found["rewritten_bytes"])
    ratio = "" if found["amplification"] is None else f", write amplification {found['amplification']}"
    return f"since the start: {found['flushed_rows']} rows flushed, {flushed}; {rewritten} written again{ratio}"


def _show_troubles(tablet: Mapping[str, Any]) -> None:
    """Write what blocks the writes of a tablet, its flush and its tasks."""
    place = f"tablet {tablet['index']}"
    if (blocked := tablet["blocked"]) is not None:
        say(f"  {place} takes no writes, {blocked['code']}: {blocked['message']}. {blocked['cure']}")
    if (failure := tablet["flush_failure"]) is not None:
        say(f"  {place} cannot be flushed: {failure['cause']}; tried again at {_moment(failure['retry_ms'])}")
    if tablet["prepared_count"]:
        say(f"  {place} has locked {tablet['locked_keys']} rows for {tablet['prepared_count']} transactions")
    if tablet["rests"]:
        say(f"  no task takes chunks of {place}: {tablet['rests']}")


def _show_tablet(found: Mapping[str, Any]) -> None:
    pivot, retained = shown_cell(found["pivot_key"]), found["retained_timestamp"]
    say(f"tablet {found['index']} from {pivot}, {found['state']}, versions from timestamp {retained}")
    over = "" if found["overlap_key"] is None else f", over {shown_cell(found['overlap_key'])}"
    say(f"  overlap {found['overlap']} of {found['overlap_max']}{over}")
    say(f"  {_written(found)}")
    _show_troubles(found)
    eden = found["eden"]
    say(f"  Eden: {eden['chunk_count']} chunks, {show_bytes(eden['compressed_bytes'])}")
    stores = [
        [one["store"], one["state"], one["keys"], one["rows"], show_bytes(one["bytes"]), _age(one["age_ms"])]
        for one in found["stores"]
    ]
    show_table(("store", "state", "keys", "rows", "memory", "age"), stores)
    partitions = [
        [
            one["index"], shown_cell(one["pivot_key"]), one["chunk_count"], show_bytes(one["compressed_bytes"]),
            one["overlap"], "" if one["task"] is None else f"{one['task']['kind']}: {one['task']['reason']}",
        ]
        for one in found["partitions"]
    ]  # fmt: skip
    show_table(("partition", "pivot", "chunks", "size", "overlap", "picked"), partitions)
    if found["chunks"]:
        header = ("chunk", "partition", "first_key", "last_key", "rows", "deletes", "size", "age", "state", "tasks")
        show_table(header, (_chunk_cells(chunk) for chunk in found["chunks"]))


def _chunk_cells(chunk: Mapping[str, Any]) -> list[object]:
    place = "Eden" if chunk["partition_index"] is None else str(chunk["partition_index"])
    if (task := chunk["task"]) is not None:
        why = f"in {task['kind']} {task['task']}: {task['reason']}"
    elif (picked := chunk["picked"]) is not None:
        why = f"picked for {picked['kind']}: {picked['reason']}"
    else:
        why = "; ".join(f"no {kind}: {reason}" for kind, reason in chunk["left_out"].items())
    keys = shown_cell(chunk["first_key"]), shown_cell(chunk["last_key"])
    size, age = show_bytes(chunk["compressed_bytes"]), _age(chunk["age_ms"])
    return [chunk["chunk"], place, *keys, chunk["rows"], chunk["deletes"], size, age, chunk["state"], why]


def _show_tasks(title: str, tasks: Iterable[Mapping[str, Any]]) -> None:
    rows = [
        [
            task["task"], task["kind"], task["reason"], _numbers(task["inputs"]), _numbers(task["outputs"]),
            show_bytes(task["input_bytes"]), show_bytes(task["bytes_written"]),
            f"{show_bytes(task['bytes_per_s'])}/s", task["failure"],
        ]
        for task in tasks
    ]  # fmt: skip
    if rows:
        say(f"{title}:")
        show_table(("task", "kind", "reason", "inputs", "outputs", "reads", "written", "rate", "failure"), rows)


def _show_explanation(found: Mapping[str, Any]) -> None:
    for rest in found["rests"]:
        say(f"no task takes chunks of tablets {_numbers(rest['tablet_indexes'])}: {rest['reason']}")
    rows = []
    for task in found["tasks"]:
        place = "Eden" if task["in_eden"] else f"partition {shown_cell(task['partition_pivot_key'])}"
        begins = f"waits: {task['waits']}" if task["waits"] else "now"
        chunks = f"{task['input_count']}: {_numbers(task['inputs'])}"
        size = show_bytes(task["compressed_bytes"])
        rows.append([
            task["order"], task["kind"], task["tablet_index"], place, task["reason"], chunks, size, task["slack"],
            begins,
        ])  # fmt: skip
    if rows:
        show_table(("order", "kind", "tablet", "place", "reason", "chunks", "size", "slack", "begins"), rows)
    else:
        say(f"no chunk of {found['path']} is picked now")
    if found["task_count"] > len(rows):
        say(f"{found['task_count'] - len(rows)} more tasks follow")
    for change in found["balance"]:
        place = f"partition {shown_cell(change['partition_pivot_key'])} of tablet {change['tablet_index']}"
        say(f"{change['kind']} of {place}: {change['reason']}")
    for left in found["left_out"]:
        named = ", ".join(f"{one['chunk']} of tablet {one['tablet_index']}" for one in left["examples"])
        say(f"no {left['kind']} of {left['chunk_count']} chunks, each {left['reason']}: {named}")


def _numbers(numbers: list[int]) -> str:
    return ",".join(map(str, numbers[:INPUTS_NAMED])) + ",…" * (len(numbers) > INPUTS_NAMED)


def _age(ms: int) -> str:
    return f"{ms / 1000:.0f} s"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")

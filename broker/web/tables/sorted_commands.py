"""Sorted tables over HTTP: the verbs of tables, each for a sorted one, and those that these alone have."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.sorted_tables import attributes, making, mounting, resharding, rows
from pqbroker.broker.services.sorted_tables.finding import every_sorted_table, find_sorted
from pqbroker.broker.services.sorted_tables.making import NewSortedTable
from pqbroker.broker.services.sorted_tables.rows import RowsAway
from pqbroker.broker.services.tables.finding import TabletRange
from pqbroker.broker.services.tables.inserting import GivenRows
from pqbroker.broker.services.tables.mounting import MountChange
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.read_timestamps import find_read_timestamp
from pqbroker.broker.web.routing.routes import Accepted, Call
from pqbroker.broker.web.tables import sorted_parts, sorted_sums
from pqbroker.broker.web.tables.routes import DELETE_ROWS, INSERT, TABLETS
from pqbroker.broker.web.tables.sorted_inside import explain_compaction, inside, tablet_inside
from pqbroker.broker.web.tables.sorted_showing import shown_sorted, shown_sorted_tablet, sorted_facts
from pqbroker.tables.mount import MountCommand
from pqbroker.tables.paths import table_path
from pqbroker.tables.refusals import TableError

_NO_CURE = "GET /v1/tables/NAME says what kind of table it is; POST …/lookup and SQL read it."


async def create(call: Call) -> Any:
    body = call.body
    for name, cure in _NOT_SORTED.items():
        if name in body:
            raise TableError("INVALID_TABLE", f"{name} is given, and the table is a sorted one", cure)
    new = NewSortedTable(
        body["path"], body["schema"], body.get("attributes", {}), body.get("bundle"), body.get("pivot_keys"),
        body.get("mount", True),
    )  # fmt: skip
    return shown_sorted(await making.create_sorted(call, new))


async def describe(call: Call) -> Any:
    return shown_sorted(find_sorted(call, AclOperation.DESCRIBE, _name(call)))


async def delete(call: Call) -> None:
    await making.delete_sorted(call, _name(call))


async def set_attributes(call: Call) -> Any:
    is_agreed = call.body.get("agreed", False)
    table, cost = await attributes.set_sorted_attributes(
        call, _name(call), call.body["attributes"], is_agreed=is_agreed
    )
    return {**shown_sorted(table), **({"estimate": cost} if cost else {})}


async def remount(call: Call) -> Any:
    return shown_sorted(await attributes.remount_sorted(call, _name(call), _tablets(call)))


async def alter(call: Call) -> Any:
    if "dynamic" in call.body:
        raise TableError("SORTED_TABLE", "dynamic is given, and the table is a sorted one", "Give a schema alone.")
    if "schema" not in call.body:
        raise bad_request("give a schema")
    return shown_sorted(await making.alter_sorted(call, _name(call), call.body["schema"]))


async def reshard(call: Call) -> Any:
    body = call.body
    if "trimmed_row_counts" in body:
        cure = "Leave it out; give pivot_keys, or tablet_count alone."
        raise TableError("SORTED_TABLE", "trimmed_row_counts is given, and the table is a sorted one", cure)
    wanted = resharding.SortedReshard(
        _tablets(call), body.get("pivot_keys"), body.get("tablet_count"), body.get("dry_run", False)
    )
    done = await resharding.reshard_sorted(call, _name(call), wanted)
    cost = {"copied_bytes": done.copied_bytes, "rewritten_bytes": done.rewritten_bytes, "seconds": done.seconds}
    return {**sorted_facts(done.table), **cost}


async def list_tablets(call: Call) -> Any:
    table = find_sorted(call, AclOperation.DESCRIBE, _name(call))
    page, has_more = call.page(range(call.query.get("after", -1) + 1, len(table.tablets)))
    own = []
    for index in page:
        await call.node.turns.breathe()
        own.append(shown_sorted_tablet(table, index))
    shown = await sorted_sums.with_other_tablets(call, TABLETS, table, own)
    return {"tablets": shown, "next": page[-1] if has_more else None}


async def insert(call: Call) -> Any:
    for name in ("session", "sequence"):
        if name in call.query or (isinstance(call.body, dict) and name in call.body):
            find_sorted(call, AclOperation.WRITE, _name(call))
            cure = f"Leave out {name}: a row that is written again is the same row."
            raise TableError("SORTED_TABLE", f"{name} is given, and the table is a sorted one", cure)
    is_arrow = isinstance(call.body, bytes)
    given = GivenRows(call.body, call.looks) if is_arrow else GivenRows(call.body["rows"], call.looks, "body.rows")
    try:
        done = await rows.insert_sorted(call, _name(call), given, is_update=call.query.get("update", False))
    except RowsAway as away:
        return await sorted_parts.ask(call, away.node, INSERT, body=call.body)
    return {"tablets": [], "data_weight": 0, "duplicate": False, **done._asdict()}


async def delete_rows(call: Call) -> Any:
    given = GivenRows(call.body["keys"], call.looks, "body.keys")
    try:
        return (await rows.delete_sorted_rows(call, _name(call), given))._asdict()
    except RowsAway as away:
        return await sorted_parts.ask(call, away.node, DELETE_ROWS, body=call.body)


async def look_up(call: Call) -> Any:
    body = call.body
    if ("keys" in body) is ("prefix" in body):
        raise bad_request("give one of keys and prefix")
    timestamp = await find_read_timestamp(call)
    if "prefix" in body:
        return {"rows": await sorted_parts.look_up_prefix(call, timestamp)}
    return {"rows": await sorted_parts.look_up(call, timestamp)}


async def mount(call: Call) -> Any:
    is_frozen = call.body.get("freeze", False)
    return await _change_state(call, MountCommand.MOUNT_FROZEN if is_frozen else MountCommand.MOUNT)


async def unmount(call: Call) -> Any:
    return await _change_state(call, MountCommand.UNMOUNT)


async def freeze(call: Call) -> Any:
    return await _change_state(call, MountCommand.FREEZE)


async def unfreeze(call: Call) -> Any:
    return await _change_state(call, MountCommand.UNFREEZE)


async def served(call: Call, verb: str) -> Any:
    """Serve a verb for a sorted table. TableError SORTED_TABLE for one that only other tables have."""
    found = _VERBS.get(verb)
    if found is None:
        find_sorted(call, AclOperation.DESCRIBE, _name(call))  # who may not see the table is not told its kind
        path, name = table_path(_name(call)), verb.replace("_", " ")
        raise TableError("SORTED_TABLE", f"{path} is a sorted table, which has no {name}", _NO_CURE)
    return await found(call)


def facts_of_all(call: Call) -> Mapping[str, Any]:
    """Return what a list says of every sorted table that the caller may see, by name."""
    return {table.record.name: sorted_facts(table) for table in every_sorted_table(call, AclOperation.DESCRIBE)}


async def _change_state(call: Call, command: MountCommand) -> Any:
    body, is_awaited = call.body, call.query.get("wait", True)
    change = MountChange(command, _tablets(call), body.get("cell_id"), body.get("force", False))
    table = await mounting.change_sorted_state(call, _name(call), change, is_awaited=is_awaited)
    return sorted_facts(table) if is_awaited else Accepted(sorted_facts(table))


def _tablets(call: Call) -> TabletRange:
    return TabletRange(call.body.get("first_tablet_index"), call.body.get("last_tablet_index"))


def _name(call: Call) -> str:
    name: str = call.path["name"]
    return name


_NOT_SORTED: Mapping[str, str] = {
    "tablet_count": "Give pivot_keys: the first key of each tablet, [] first.",
    "trimmed_row_counts": "Leave it out: rows are found by key.",
    "config": "Leave it out: it is no topic.",
    "dynamic": "Leave it out: a sorted table is dynamic.",
}
"""Fields of a new table that a sorted one has not, and what to give instead."""
_VERBS: Mapping[str, Callable[[Call], Awaitable[Any]]] = {
    each.__name__: each
    for each in (
        describe, delete, alter, set_attributes, remount, reshard, list_tablets, insert, delete_rows, look_up, mount,
        unmount, freeze, unfreeze, inside, tablet_inside, explain_compaction,
    )
}  # fmt: skip
"""Verbs by the names that the routes have for them."""

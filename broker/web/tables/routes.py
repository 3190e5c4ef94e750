"""Tables: topics with a schema. What serves them is loaded with the first request for one, so that a broker without
tables starts as fast and as small as ever."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, check_access
from pqbroker.broker.services.leaders import cells_of
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.web.resources.configs import CHANGES
from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.routes import AFTER_NAME, LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.broker.web.routing.stream_forms import ARROW_STREAM
from pqbroker.broker.web.routing.table_problems import told
from pqbroker.broker.web.tables.inside_schemas import EXPLAINED, INSIDE, INSIDE_OF_TABLET, TABLE_FACTS
from pqbroker.storage.ids import CellId
from pqbroker.storage.tablets.scheme_objects import SORTED_TABLE


def _load_commands() -> Any:
    from pqbroker.broker.web.tables import commands

    return commands


def _load_rows() -> Any:
    from pqbroker.broker.web.tables import rows

    return rows


def _load_inserting() -> Any:
    from pqbroker.broker.web.tables import inserting

    return inserting


def _load_sorted() -> Any:
    from pqbroker.broker.web.tables import sorted_commands

    return sorted_commands


_commands, _rows, _inserting = LoadedLater(_load_commands), LoadedLater(_load_rows), LoadedLater(_load_inserting)
SORTED: Final = LoadedLater(_load_sorted)
"""The module of sorted tables."""


def _served(name: str, module: LoadedLater[Any]) -> Callable[[Call], Awaitable[Any]]:
    """The function `name` of a module that is loaded with the first call, for a sorted table of that of sorted ones;
    what it refuses is a problem."""

    async def serve(call: Call) -> Any:
        if call.node.cell.current.scheme.kind_of(call.path.get("name", "")) == SORTED_TABLE:
            of_sorted = await SORTED.get()
            return await told(of_sorted.served(call, name))
        serving = await module.get()
        return await told(getattr(serving, name)(call))

    serve.__name__ = name
    return serve


def _is_sorted(call: Call) -> bool:
    return call.node.cell.current.scheme.kind_of(call.path["name"]) == SORTED_TABLE


def _reading_node(call: Call) -> int | None:
    """Return the other node that runs the tablet of an ordered table which a call reads."""
    if _is_sorted(call):
        return None
    return call.node_of(AclOperation.READ, (call.query.get("tablet_index", 0),))


def _trimming_node(call: Call) -> int | None:
    """Return the other node that runs the tablet of an ordered table which a call trims."""
    return None if _is_sorted(call) else call.node_of(AclOperation.DELETE, (call.body["tablet_index"],))


def _writing_node(call: Call) -> int | None:
    """Return the other node that runs a table whose tablets live in one cell: a commit over several cells, which may
    move to different nodes before it ends, is left to the node with the system cell."""
    if _is_sorted(call):
        cells = set(_cells(call, AclOperation.WRITE))
    else:
        cells = cells_of(find_topic(call, AclOperation.WRITE, call.path["name"], or_static=True))
    return call.node.leaders.only_node_of(cells) if len(cells) == 1 else None


def _node_of_tablet(call: Call) -> int | None:
    """Return the other node that runs the tablet of a sorted table whose number the path has."""
    cells = _cells(call, AclOperation.READ) if _is_sorted(call) else ()
    index: int = call.path["tablet"]
    return call.node.leaders.other_node(cells[index]) if index < len(cells) else None


def _cells(call: Call, operation: AclOperation) -> Sequence[CellId]:
    """Return the cell of each tablet of a sorted table. KafkaError TOPIC_AUTHORIZATION_FAILED."""
    name = call.path["name"]
    check_access(call, operation, AclResource(AclKind.TOPIC, name))
    table = call.node.cell.current.sorted_tables.get(name)
    return () if table is None else [table.record.cell_of(index) for index in range(len(table.record.tablets))]


def _nowhere_else(_: Call) -> None:
    """Return None: where other nodes run tablets of a table they are asked from here, each for its part."""


_ROW_INDEX: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 62) - 1}
_SEQUENCE: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
_TABLET_COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": 20_000}
_ANY: Schema = {"type": "object"}
_COLUMN: Schema = {
    "type": "object",
    "properties": {
        "name": TEXT, "type": TEXT, "required": {"type": "boolean"}, "from": TEXT, "sort_order": TEXT,
        "expression": TEXT,
    },
}
_TABLE = object_of(
    {**TABLE_FACTS, "schema": array_of(_COLUMN), "formats": _ANY, "attributes": _ANY, "attributes_set": _ANY,
     "mounted_attributes": _ANY},
    {"pivot_keys": array_of({"type": "array"}), "estimate": TEXT},
)
_TABLET = object_of(
    {
        "index": COUNT, "tablet_id": COUNT, "state": TEXT, "cell_id": nullable(TEXT), "home_cell_id": TEXT,
        "mounted_attributes": _ANY, "statistics": _ANY,
    },
    {
        "trimmed_row_count": COUNT, "flushed_row_count": COUNT, "total_row_count": COUNT,
        "pivot_key": {"type": "array"}, "node": COUNT,
    },
)  # fmt: skip
_INSERTED = object_of({"tablet_index": COUNT, "first_row_index": OFFSET, "row_count": COUNT})
_TIMESTAMP: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}
_WRITTEN = object_of({"row_count": COUNT, "timestamp": COUNT})
_PIECE = object_of({"name": TEXT, "tablet_index": COUNT, "row_count": COUNT})
_RANGE = {"first_tablet_index": COUNT, "last_tablet_index": COUNT}
_WAIT = Parameter("wait", {"type": "boolean"}, "Answer when the state is reached; false: at once, with status 202.")
_PIVOTS: Schema = array_of({"type": "array"})
_NEW = object_of(
    {"path": TEXT, "schema": array_of(_COLUMN)},
    {
        "tablet_count": _TABLET_COUNT,
        "trimmed_row_counts": array_of(_ROW_INDEX), "attributes": _ANY, "bundle": TEXT, "mount": {"type": "boolean"},
        "config": CHANGES, "dynamic": {"type": "boolean"}, "pivot_keys": _PIVOTS,
    },
)  # fmt: skip


def _verb(name: str, summary: str, more: Mapping[str, Schema]) -> Route:
    """A command that changes mount states."""
    body = object_of({}, {**_RANGE, **more})
    path = f"/v1/tables/{{name}}/{name}"
    return Route("POST", path, summary, _served(name, _commands), object_of(TABLE_FACTS), (_WAIT,), body=body)


TABLETS = Route(
    "GET", "/v1/tables/{name}/tablets", "List the tablets of a table", _served("list_tablets", _commands),
    object_of({"tablets": array_of(_TABLET), "next": nullable(COUNT)}),
    (Parameter("after", COUNT, "List the tablets behind this one: `next` of the answer before."), LIMIT),
    place=_nowhere_else,
)  # fmt: skip
INSIDE_OF_TABLE = Route(
    "GET", "/v1/tables/{name}/inside", "Show what happens in a sorted table: stores, chunks, tasks, blocked writes",
    _served("inside", _commands), INSIDE,
    (Parameter("after", COUNT, "List the tablets behind this one: `next` of the answer before."), LIMIT),
    place=_nowhere_else,
)  # fmt: skip
COMPACTION = Route(
    "GET", "/v1/tables/{name}/compaction",
    "Explain compaction of a sorted table: tasks that it calls for, in order, and why chunks are left out",
    _served("explain_compaction", _commands), EXPLAINED,
    (
        Parameter("first_tablet_index", COUNT, "Begin with this tablet; without it: 0."),
        Parameter("last_tablet_index", COUNT, "End with this tablet; without it: the last one."), LIMIT,
    ),
    place=_nowhere_else,
)  # fmt: skip
LOOKUP = Route(
    "POST", "/v1/tables/{name}/lookup",
    "Look up rows of a sorted table by their keys, or by the first columns of them, as they were at a timestamp",
    _served("look_up", _commands), object_of({"rows": array_of(nullable(_ANY))}),
    body=object_of(
        {},
        {
            "keys": array_of(_ANY), "prefix": _ANY, "timestamp": _TIMESTAMP, "transaction": TEXT,
            "columns": array_of(TEXT), **_RANGE,
        },
    ),
    body_example={"keys": [{"id": 1}]},
    place=_nowhere_else,
)  # fmt: skip
INSERT = Route(
    "POST", "/v1/tables/{name}/rows", "Insert rows, all or none",
    _served("insert", _inserting),
    object_of(
        {"tablets": array_of(_INSERTED), "data_weight": COUNT, "duplicate": {"type": "boolean"}},
        {"row_count": COUNT, "timestamp": COUNT},
    ),
    (
        Parameter("session", TEXT, "Take no batch of this session again that was taken; with `sequence`."),
        Parameter("sequence", _SEQUENCE, "Number the batch within its session, in rising order."),
        Parameter("update", {"type": "boolean"}, "Sorted table: leave columns that a row lacks as they were."),
    ),
    body=object_of({"rows": array_of(_ANY)}, {"session": TEXT, "sequence": _SEQUENCE}),
    body_example={"rows": [{"id": 1, "note": "first"}]}, lines="rows", raw_types=(ARROW_STREAM,),
    place=_writing_node,
)  # fmt: skip
DELETE_ROWS = Route(
    "DELETE", "/v1/tables/{name}/rows", "Delete the rows of keys of a sorted table, all or none",
    _served("delete_rows", _commands), _WRITTEN,
    body=object_of({"keys": array_of(_ANY)}), body_example={"keys": [{"id": 1}]},
    place=_writing_node,
)  # fmt: skip

ROUTES = (
    Route(
        "GET", "/v1/tables", "List tables by name", _served("list_tables", _commands),
        object_of({"tables": array_of(object_of(TABLE_FACTS)), "next": nullable(TEXT)}), (AFTER_NAME, LIMIT),
    ),
    Route(
        "POST", "/v1/tables", "Create an ordered table, which is a topic too, or one that is sorted by key columns",
        _served("create", _commands), _TABLE,
        body=_NEW, status=201,
        body_example={
            "path": "//shop/orders", "schema": [{"name": "id", "type": "int64", "required": True},
                                                {"name": "note", "type": "utf8"}],
        },
    ),
    Route("GET", "/v1/tables/{name}", "Describe a table", _served("describe", _commands), _TABLE),
    Route(
        "PATCH", "/v1/tables/{name}", "Set attributes of a table; a tablet takes them at its remount",
        _served("set_attributes", _commands), _TABLE,
        body=object_of({"attributes": _ANY}, {"agreed": {"type": "boolean"}}),
    ),
    Route(
        "DELETE", "/v1/tables/{name}", "Delete a table and its topic", _served("delete", _commands), None, status=204
    ),
    TABLETS,
    INSIDE_OF_TABLE,
    Route(
        "GET", "/v1/tables/{name}/tablets/{tablet}/inside",
        "Show what happens in a tablet of a sorted table, by its index: partitions, and chunks with key ranges",
        _served("tablet_inside", _commands), INSIDE_OF_TABLET,
        (
            Parameter("after", COUNT, "List the chunks behind this one: `next` of the answer before."),
            Parameter("after_partition", COUNT, "List the partitions behind this one: `next_partition`."), LIMIT,
        ),
        place=_node_of_tablet,
    ),
    COMPACTION,
    INSERT,
    DELETE_ROWS,
    LOOKUP,
    Route(
        "POST", "/v1/tables/{name}/staged-rows",
        "Stage rows for a batch of a session: nobody sees them until the batch is committed",
        _served("stage", _inserting), object_of({"pieces": array_of(_PIECE)}),
        (
            Parameter("session", TEXT, "Name the session whose batch it is."),
            Parameter("sequence", _SEQUENCE, "Number the batch within its session, in rising order."),
            Parameter("tablet_hint", COUNT, "Put rows that name no tablet into this one, if it is mounted."),
        ),
        body=object_of({"rows": array_of(_ANY)}, {"session": TEXT, "sequence": _SEQUENCE}),
        body_example={"rows": [{"id": 1, "note": "first"}], "session": "loader-1", "sequence": 41},
        lines="rows", raw_types=(ARROW_STREAM,), place=_writing_node,
    ),
    Route(
        "POST", "/v1/tables/{name}/staged-rows/commit",
        "Write the staged pieces of a batch, once however often it is asked for; while `done` is false, ask again",
        _served("commit", _inserting),
        object_of({"row_count": COUNT, "duplicate": {"type": "boolean"}, "done": {"type": "boolean"}}),
        body=object_of(
            {"session": TEXT, "sequence": _SEQUENCE, "pieces": array_of(TEXT)}, {"on_changed": TEXT}
        ),
        body_example={
            "session": "loader-1", "sequence": 41, "pieces": ["0.2.0f343b0931126a20f133d67c2b018a3b.9f86d081884c7d65"],
        },
        place=_writing_node,
    ),
    Route(
        "GET", "/v1/tables/{name}/rows", "Read rows of a tablet: typed for a table, raw for any topic",
        _served("select", _rows), object_of({"rows": array_of(_ANY), "next_row_index": {"type": "integer"}}),
        (
            Parameter("tablet_index", COUNT, "Read this tablet; without it: 0."),
            Parameter("first_row_index", {"type": "integer"}, "Begin with this row, or the first one after it."),
            Parameter("view", TEXT, "Show rows `typed` or `raw`; without it: typed where the topic is a table."),
            LIMIT,
        ),
        place=_reading_node,
    ),
    Route(
        "POST", "/v1/tables/{name}/trim", "Delete the rows of a tablet before an index", _served("trim", _commands),
        object_of({"tablet_index": COUNT, "trimmed_row_count": COUNT}),
        body=object_of({"tablet_index": COUNT, "trimmed_row_count": {"type": "integer"}}), place=_trimming_node,
    ),
    Route(
        "POST", "/v1/tables/{name}/alter", "Change the schema of an unmounted table, or make it static or dynamic",
        _served("alter", _commands),
        _TABLE, body=object_of({}, {"schema": array_of(_COLUMN), "dynamic": {"type": "boolean"}}),
        body_example={"schema": [{"name": "id", "type": "int64"}]},
    ),
    Route(
        "POST", "/v1/tables/{name}/remount", "Have the attributes that were set act in tablets",
        _served("remount", _commands), _TABLE, body=object_of({}, _RANGE),
    ),
    Route(
        "POST", "/v1/tables/{name}/reshard", "Replace a range of unmounted tablets by more or fewer",
        _served("reshard", _commands),
        object_of(TABLE_FACTS, {"copied_bytes": COUNT, "rewritten_bytes": COUNT, "seconds": {"type": "number"}}),
        body=object_of(
            {},
            {
                **_RANGE, "tablet_count": _TABLET_COUNT, "trimmed_row_counts": array_of(_ROW_INDEX),
                "pivot_keys": _PIVOTS, "dry_run": {"type": "boolean"},
            },
        ),
        body_example={"tablet_count": 4},
    ),
    _verb("mount", "Mount tablets", {"freeze": {"type": "boolean"}, "cell_id": TEXT}),
    _verb("unmount", "Unmount tablets: nothing is read or written", {"force": {"type": "boolean"}}),
    _verb("freeze", "Freeze tablets: rows are read, none written", {}),
    _verb("unfreeze", "Unfreeze tablets", {}),
)  # fmt: skip

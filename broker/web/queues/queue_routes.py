"""Routes of queues. What serves them is loaded with the first request for one, as with tables."""

from functools import partial
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.leaders import cells_of
from pqbroker.broker.services.topics.finding import find_topic
from pqbroker.broker.web.routing.every_node import nowhere_else
from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.routes import AFTER_NAME, LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.broker.web.routing.table_problems import served_by


def _load() -> Any:
    from pqbroker.broker.web.queues import commands

    return commands


_served = partial(served_by, LoadedLater(_load), __name__)


_BOOLEAN: Schema = {"type": "boolean"}
_INTEGER: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
_ROW_INDEX: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 62) - 1}
_ANY: Schema = {"type": "object"}
_AUTO_TRIM = object_of(
    {"enable": _BOOLEAN, "retained_rows": nullable(COUNT), "retained_lifetime_duration": nullable(COUNT)}
)
_CONSUMER = {"consumer": TEXT, "vital": _BOOLEAN}
_PLACE = object_of({
    "tablet_index": COUNT, "offset": nullable(_INTEGER), "first_row_index": OFFSET, "end_row_index": OFFSET,
    "disposition": TEXT, "unread_row_count": COUNT, "committed": nullable(_INTEGER),
})  # fmt: skip
_SESSION = {
    "producer": TEXT, "session": TEXT, "epoch": COUNT, "sequence_number": _INTEGER, "user_meta": {}, "written": COUNT,
}  # fmt: skip
_QUEUE = object_of({
    "name": TEXT, "path": TEXT, "tablet_count": COUNT, "is_table": _BOOLEAN,
    "consumers": array_of(object_of(_CONSUMER)), "auto_trim_config": _AUTO_TRIM,
})  # fmt: skip
_INSERTED = object_of({"tablet_index": COUNT, "first_row_index": OFFSET, "row_count": COUNT})
_NAMED_SESSION = {"producer": TEXT, "session": TEXT}
_ONE = "/v1/queues/{name}"
_SESSION_EXAMPLE = {"producer": "loader", "session": "host-1"}



def _node_of_sessions(call: Call) -> int | None:
    """Return the other node that runs a queue whose tablets live in one cell, with its producers' sessions."""
    cells = cells_of(find_topic(call, AclOperation.DESCRIBE, call.path["name"], or_static=True))
    return call.node.leaders.only_node_of(cells) if len(cells) == 1 else None


PULL = Route(
    "GET", f"{_ONE}/rows",
    "Pull rows of a tablet from an offset on, or with `consumer` from where it stands; an empty answer means that "
    "nothing is there yet",
    _served("pull"),
    object_of({"rows": array_of(_ANY), "offset": COUNT, "next_offset": COUNT}),
    (
        Parameter("tablet_index", COUNT, "Pull from this tablet; without it: 0."),
        Parameter("offset", _ROW_INDEX, "Begin with this row, or the first one after it; without it: 0, or where "
                  "the consumer stands."),
        Parameter("consumer", TEXT, "Pull as this consumer, which must be registered with the queue."),
        Parameter("max_row_count", {"type": "integer", "minimum": 1},
                  "Pull at most this number of rows: 1000 unless given."),
        Parameter("max_data_weight", {"type": "integer", "minimum": 1},
                  "Pull rows of at most this number of bytes, or one row: 16 MiB unless given, and never more than "
                  "pqbroker.http.answer.bytes.max."),
        Parameter("view", TEXT, "Show rows `typed` or `raw`; without it: typed where the queue has a schema."),
    ),
    place=nowhere_else,
)  # fmt: skip
"""The consumer's offset is the first node's to know, rows are with the tablet's."""
ROUTES = (
    Route(
        "GET", "/v1/queues", "List queues with consumers or auto trim by name, or those of one consumer",
        _served("list_queues"), object_of({"queues": array_of(_QUEUE), "next": nullable(TEXT)}),
        (AFTER_NAME, LIMIT, Parameter("consumer", TEXT, "List the queues that this consumer is registered with.")),
    ),
    Route("GET", _ONE, "Describe a queue: its consumers and its auto trim", _served("describe"), _QUEUE),
    Route(
        "PATCH", _ONE, "Set the auto trim of a queue: fields that are left out go back to their defaults",
        _served("set_auto_trim"), _QUEUE, body=object_of({"auto_trim_config": _ANY}),
        body_example={"auto_trim_config": {"enable": True, "retained_rows": 1000}},
    ),
    Route(
        "POST", f"{_ONE}/consumers", "Register a consumer with a queue, or change whether it is vital",
        _served("register"), _QUEUE, body=object_of({"consumer": TEXT, "vital": _BOOLEAN}),
        body_example={"consumer": "billing", "vital": True},
    ),
    Route(
        "GET", f"{_ONE}/consumers/{{consumer}}", "Show where a consumer stands in each tablet of a queue",
        _served("describe_consumer"),
        object_of({
            "queue": TEXT, **_CONSUMER, "registered": _BOOLEAN, "group_state": TEXT, "tablets": array_of(_PLACE),
            "next": nullable(COUNT),
        }),
        (Parameter("after", COUNT, "List the tablets behind this one: `next` of the answer before."), LIMIT),
    ),
    Route(
        "DELETE", f"{_ONE}/consumers/{{consumer}}", "Take a consumer from a queue; its offsets stay",
        _served("unregister"), None, status=204,
    ),
    Route(
        "POST", f"{_ONE}/advance",
        "Commit how far a consumer has read in a tablet; with old_offset only if it stands there",
        _served("advance"),
        object_of({"consumer": TEXT, "tablet_index": COUNT, "old_offset": nullable(_INTEGER), "new_offset": COUNT}),
        body=object_of(
            {"consumer": TEXT, "tablet_index": COUNT, "new_offset": _ROW_INDEX}, {"old_offset": nullable(_ROW_INDEX)}
        ),
        body_example={"consumer": "billing", "tablet_index": 0, "old_offset": 0, "new_offset": 100},
    ),
    PULL,
    Route(
        "GET", f"{_ONE}/producer-sessions", "List sessions of producers by their names", _served("list_sessions"),
        object_of({"sessions": array_of(object_of(_SESSION)), "next": nullable(object_of(_NAMED_SESSION))}),
        (
            Parameter("after_producer", TEXT, "List those behind this producer and `after_session`."),
            Parameter("after_session", TEXT, "List those behind this session: both from `next` of the answer before."),
            LIMIT,
        ),
        place=_node_of_sessions,
    ),
    Route(
        "POST", f"{_ONE}/producer-sessions",
        "Take a session of a producer: its epoch grows, and earlier owners are fenced", _served("take_session"),
        object_of(_SESSION), body=object_of(_NAMED_SESSION, {"user_meta": {}}), body_example=_SESSION_EXAMPLE,
        place=_node_of_sessions,
    ),
    Route(
        "DELETE", f"{_ONE}/producer-sessions", "Forget a session of a producer", _served("end_session"), None,
        body=object_of(_NAMED_SESSION), body_example=_SESSION_EXAMPLE, status=204, place=_node_of_sessions,
    ),
    Route(
        "POST", f"{_ONE}/push",
        "Push rows in a session of a producer, all or none; rows whose number was taken before are left out",
        _served("push"),
        object_of({
            "last_sequence_number": _INTEGER, "skipped_row_count": COUNT, "tablets": array_of(_INSERTED),
            "data_weight": COUNT,
        }),
        body=object_of(
            {**_NAMED_SESSION, "epoch": _NUMBER, "rows": array_of(_ANY)},
            {"sequence_number": _NUMBER, "user_meta": {}},
        ),
        body_example={
            **_SESSION_EXAMPLE, "epoch": 0, "sequence_number": 0, "rows": [{"id": 1, "note": "first"}],
        },
        place=_node_of_sessions,
    ),
)  # fmt: skip

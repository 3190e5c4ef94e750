"""Routes of materializations. What serves them is loaded with the first request for one, as that of tables is."""

from functools import partial
from typing import Any

from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.routes import AFTER_NAME, LIMIT, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, OFFSET, TEXT, Schema, array_of, nullable, object_of
from pqbroker.broker.web.routing.table_problems import served_by


def _load() -> Any:
    from pqbroker.broker.web.tables import materialization_commands

    return materialization_commands


_served = partial(served_by, LoadedLater(_load), __name__)


_ORIGINS: Schema = {"type": "object", "additionalProperties": TEXT}
_FACTS = {
    "table": TEXT, "path": TEXT, "topic": TEXT, "state": TEXT,
    "reason": nullable(object_of({"code": TEXT, "message": TEXT, "cure": TEXT})), "lag": COUNT,
    "dead_letter_count": COUNT, "dead_letter_topic": nullable(TEXT),
}  # fmt: skip
_MATERIALIZATION = object_of({
    **_FACTS,
    "columns": _ORIGINS,
    "created": COUNT,
    "partitions": array_of(object_of({"partition": COUNT, "offset": OFFSET, "end_offset": OFFSET, "lag": COUNT})),
    "dead_letters": array_of(object_of({"partition": COUNT, "offset": OFFSET, "reason": TEXT})),
})
ROUTES = (
    Route(
        "GET", "/v1/materializations", "List the sorted tables that topics feed, with lag and state",
        _served("list_all"), object_of({"materializations": array_of(object_of(_FACTS)), "next": nullable(TEXT)}),
        (
            Parameter("table", TEXT, "List that of this table alone."),
            Parameter("topic", TEXT, "List those that this topic feeds."), AFTER_NAME, LIMIT,
        ),
    ),
    Route(
        "POST", "/v1/materializations",
        "Have a topic feed a sorted table: the table keeps the latest value of each key, from the topic's start on",
        _served("create"), _MATERIALIZATION,
        body=object_of({"topic": TEXT, "table": TEXT}, {"columns": _ORIGINS, "dead_letter_topic": TEXT}), status=201,
        body_example={"topic": "orders", "table": "//shop/latest", "columns": {"id": "key", "order": "value"}},
    ),
    Route(
        "GET", "/v1/materializations/{name}",
        "Describe what feeds a sorted table: state, reason, progress by partition, the last dead letters",
        _served("describe"), _MATERIALIZATION,
    ),
    Route(
        "POST", "/v1/materializations/{name}/pause", "Read nothing more of the topic until it is resumed",
        _served("pause"), _MATERIALIZATION, body=object_of({}),
    ),
    Route(
        "POST", "/v1/materializations/{name}/resume",
        "Continue where it was left, or from the start of the topic of that name; origins of columns are found again",
        _served("resume"), _MATERIALIZATION, body=object_of({}, {"from_start": {"type": "boolean"}}),
    ),
    Route(
        "DELETE", "/v1/materializations/{name}", "Feed the table no more; its rows stay", _served("drop"), None,
        status=204,
    ),
)  # fmt: skip

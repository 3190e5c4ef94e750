"""The tree of names. What serves it is loaded with the first request, as that of tables is."""

from typing import Any

from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import TEXT, Schema
from pqbroker.broker.web.routing.table_problems import told

_ANY: Schema = {}
_AFTER = Parameter("after", TEXT, "List names behind this one.")
_CHILDREN = Parameter(
    "children", {"type": "boolean"}, "Answer the names below it, as a list, whatever the path itself is."
)


def _load_view() -> Any:
    from pqbroker.broker.web.tree import view

    return view


_view = LoadedLater(_load_view)


async def get(call: Call) -> Any:
    view = await _view.get()
    return await told(view.get(call))


async def put(call: Call) -> Any:
    view = await _view.get()
    return await told(view.put(call))


ROUTES = (
    Route(
        "GET", "/v1/tree/{path}",
        "Read what a path names: a table, topic, tablet, cell or bundle, or an attribute (@) of one",
        get, _ANY, (_CHILDREN, _AFTER, LIMIT), example={"orders": None, "bills": None},
    ),
    Route(
        "PUT", "/v1/tree/{path}", "Set an attribute of a table or bundle; the body is its value", put, _ANY,
        body=_ANY, body_example=86_400_000, example=86_400_000,
    ),
)  # fmt: skip

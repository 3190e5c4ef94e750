"""Routes of transactions over tables. What serves them is loaded with the first request for one, as with tables."""

from collections.abc import Awaitable, Callable
from typing import Any

from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, Schema, array_of, nullable, object_of
from pqbroker.broker.web.routing.table_problems import told


def _load() -> Any:
    from pqbroker.broker.web.tables import transaction_commands

    return transaction_commands


_commands = LoadedLater(_load)


def _served(name: str) -> Callable[[Call], Awaitable[Any]]:
    """The function `name` of the commands, which are loaded with the first call; what it refuses is a problem."""

    async def serve(call: Call) -> Any:
        commands = await _commands.get()
        return await told(getattr(commands, name)(call))

    serve.__name__ = name
    return serve


_TRANSACTION = object_of({
    "transaction": TEXT, "state": TEXT, "principal": TEXT, "start_timestamp": COUNT, "started": COUNT,
    "timeout_ms": COUNT, "expires": nullable(COUNT), "cause": nullable(TEXT), "commit_timestamp": nullable(COUNT),
})  # fmt: skip
_ANY: Schema = {"type": "object"}
_WRITE = object_of({"table": TEXT}, {"rows": array_of(_ANY), "update": {"type": "boolean"}, "delete": array_of(_ANY)})
_ONE = "/v1/transactions/{transaction}"
ROUTES = (
    Route(
        "POST", "/v1/transactions",
        "Start a transaction over tables: it reads as of now, and writes with its commit, all or nothing",
        _served("start"), _TRANSACTION, body=object_of({}, {"timeout_ms": {"type": "integer"}}), status=201,
        body_example={"timeout_ms": 15_000},
    ),
    Route(
        "GET", "/v1/transactions", "List the transactions that are open or ended a while ago, the oldest first",
        _served("list_all"),
        object_of({"transactions": array_of(_TRANSACTION), "next": nullable(COUNT)}),
        (
            Parameter("state", TEXT, "List those in this state alone: open, committing, committed or aborted."),
            Parameter("after", COUNT, "List those that started behind this timestamp: `next` of the answer before."),
            LIMIT,
        ),
    ),
    Route("GET", _ONE, "Describe a transaction", _served("describe"), _TRANSACTION),
    Route(
        "POST", f"{_ONE}/ping", "Keep a transaction open for its timeout again", _served("ping"), _TRANSACTION,
        body=object_of({}),
    ),
    Route(
        "POST", f"{_ONE}/commit",
        "Commit a transaction with all its writes; the same request sent again gets the same answer",
        _served("commit"), object_of({"timestamp": COUNT, "row_count": COUNT, "duplicate": {"type": "boolean"}}),
        body=object_of({"writes": array_of(_WRITE)}),
        body_example={
            "writes": [
                {"table": "//shop/stock", "rows": [{"shop": "north", "id": 5, "count": 2}], "update": True},
                {"table": "shop.orders", "rows": [{"id": 1, "note": "first"}]},
                {"table": "shop.carts", "delete": [{"id": 7}]},
            ]
        },
    ),
    Route(
        "POST", f"{_ONE}/abort", "Abort a transaction; one that is aborted stays so", _served("abort"), None,
        body=object_of({}, {"force": {"type": "boolean"}}), status=204, body_example={"force": True},
    ),
)  # fmt: skip

"""Routes of transactions over tables. What serves them is loaded with the first request for one, as with tables."""

from functools import partial
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.routes import LIMIT, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, Schema, array_of, nullable, object_of
from pqbroker.broker.web.routing.table_problems import served_by


def _load() -> Any:
    from pqbroker.broker.web.tables import transaction_commands

    return transaction_commands


_served = partial(served_by, LoadedLater(_load), __name__)


_BOOLEAN: Schema = {"type": "boolean"}
_TRANSACTION = object_of({
    "transaction": TEXT, "state": TEXT, "principal": TEXT, "start_timestamp": COUNT, "started": COUNT,
    "timeout_ms": COUNT, "expires": nullable(COUNT), "cause": nullable(TEXT), "commit_timestamp": nullable(COUNT),
    "transactional_id": nullable(TEXT),
})  # fmt: skip
_PLACE = object_of({
    "table": nullable(TEXT), "tablet_index": COUNT, "tablet_id": COUNT, "cell": nullable(COUNT),
})  # fmt: skip
_UNFINISHED = object_of({
    "transaction": TEXT, "what": TEXT, "participant": _PLACE, "home": _PLACE, "since": COUNT,
    "waits_for": nullable(TEXT), "rows": nullable(COUNT), "bytes": nullable(COUNT),
})  # fmt: skip
_RESOLVING = object_of({
    "transaction": TEXT, "outcome": TEXT, "timestamp": nullable(COUNT), "dry_run": _BOOLEAN, "home": _PLACE,
    "waits_for": TEXT, "known": nullable(object_of({"committed": nullable(_BOOLEAN), "timestamp": COUNT})),
    "participants": array_of(object_of({"participant": _PLACE, "since": COUNT, "bytes": COUNT})), "left": COUNT,
})  # fmt: skip
_RESOLVED = object_of({
    "transaction": TEXT, "outcome": TEXT, "timestamp": nullable(COUNT), "home": _PLACE, "resolved": COUNT,
    "principal": TEXT, "home_says": nullable(TEXT),
})  # fmt: skip
_ANY: Schema = {"type": "object"}
_WRITE = object_of({"table": TEXT}, {"rows": array_of(_ANY), "update": _BOOLEAN, "delete": array_of(_ANY)})
_OFFSET = object_of(
    {"group": TEXT, "topic": TEXT, "partition": COUNT, "offset": COUNT},
    {"leader_epoch": {"type": "integer"}, "metadata": TEXT},
)
_ONE = "/v1/transactions/{transaction}"
ROUTES = (
    Route(
        "POST", "/v1/transactions",
        "Start a transaction over tables: it reads as of now, and writes with its commit, all or nothing",
        _served("start"), _TRANSACTION,
        body=object_of({}, {"timeout_ms": {"type": "integer"}, "transactional_id": TEXT}), status=201,
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
    Route(
        "GET", "/v1/transactions/unfinished",
        "List what commits over several tablets have not finished, by tablet: rows that are prepared and wait for a "
        "decision, and decisions that were not carried out everywhere",
        _served("list_unfinished"),
        object_of({"unfinished": array_of(_UNFINISHED), "next": nullable(TEXT)}),
        (Parameter("after", TEXT, "List what stands behind `next` of the answer before."), LIMIT),
        cluster=AclOperation.DESCRIBE,
    ),
    Route(
        "GET", "/v1/transactions/resolved",
        "List transactions in doubt that operators have resolved, until their home agrees",
        _served("list_resolved"),
        object_of({"resolved": array_of(_RESOLVED), "next": nullable(TEXT)}),
        (Parameter("after", TEXT, "List those behind this transaction: `next` of the answer before."), LIMIT),
        cluster=AclOperation.DESCRIBE,
    ),
    Route(
        "POST", f"{_ONE}/resolve",
        "End the rows in doubt of a transaction whose cell with the decision does not come back: commit them at a "
        "timestamp, or drop them; a dry run, the default, shows them",
        _served("resolve"), _RESOLVING,
        body=object_of({"outcome": TEXT}, {"timestamp": COUNT, "dry_run": _BOOLEAN}),
        body_example={"outcome": "abort", "dry_run": True}, cluster=AclOperation.ALTER,
    ),
    Route("GET", _ONE, "Describe a transaction", _served("describe"), _TRANSACTION),
    Route(
        "POST", f"{_ONE}/ping", "Keep a transaction open for its timeout again", _served("ping"), _TRANSACTION,
        body=object_of({}),
    ),
    Route(
        "POST", f"{_ONE}/commit",
        "Commit a transaction with all its writes, offsets of consumer groups, and the records of its producer; the "
        "same request sent again gets the same answer",
        _served("commit"), object_of({"timestamp": COUNT, "row_count": COUNT, "duplicate": _BOOLEAN}),
        body=object_of({"writes": array_of(_WRITE)}, {"offsets": array_of(_OFFSET)}),
        body_example={
            "writes": [
                {"table": "//shop/stock", "rows": [{"shop": "north", "id": 5, "count": 2}], "update": True},
                {"table": "shop.orders", "rows": [{"id": 1, "note": "first"}]},
                {"table": "shop.carts", "delete": [{"id": 7}]},
            ],
            "offsets": [{"group": "clerks", "topic": "orders.in", "partition": 0, "offset": 42}],
        },
    ),
    Route(
        "POST", f"{_ONE}/abort", "Abort a transaction; one that is aborted stays so", _served("abort"), None,
        body=object_of({}, {"force": _BOOLEAN}), status=204, body_example={"force": True},
    ),
)  # fmt: skip

"""Refusals of tables, as problems; what knows of tables is loaded with the first answer that asks them."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call

_STATUSES: Mapping[str, int] = {
    "NO_TABLE": 404, "NO_TABLET": 404, "NO_BUNDLE": 404, "NO_CELL": 404,
    "ROWS_TOO_LARGE": 413, "WORKER_LOST": 503, "TABLES_NOT_INSTALLED": 501,
    "CANNOT_MOVE": 409, "CANNOT_GLUE": 409, "NO_MOUNTED_TABLETS": 409, "WRONG_STATE": 409,
    "INCOMPATIBLE_SCHEMA": 409, "STATIC_TABLE": 409, "TOO_MANY_ATTRIBUTE_SETS": 409,
    "BATCH_DAMAGED": 409, "CHUNK_DAMAGED": 409, "CHANGED_BATCH": 409,
    "SESSION_AHEAD": 409, "STAGE_LOST": 409, "STAGE_FULL": 503,
    "TABLE_CHANGED": 409, "TABLET_BUSY": 503, "TABLET_DAMAGED": 409, "TABLET_NOT_OPEN": 409, "TABLET_STARTING": 503,
    "NOT_SORTED": 409, "SORTED_TABLE": 409, "SEVERAL_CELLS": 400,
    "TOO_MANY_ROWS": 413, "LOOKUP_TOO_LARGE": 413, "FLUSH_FAILED": 409, "NEEDS_AGREEMENT": 409,
    "ROW_LOCK_CONFLICT": 409,
    "NO_TRANSACTION": 404, "TRANSACTION_ENDED": 409, "TRANSACTION_CHANGED": 409, "TRANSACTION_COMMITTING": 409,
    "TRANSACTION_UNDER_WAY": 409, "ROW_LOCKED": 503, "COMMIT_UNKNOWN": 503, "COMMIT_TOO_SLOW": 503,
    "TRANSACTIONS_PAUSED": 503, "TOO_MANY_TRANSACTIONS": 503, "TOO_MANY_ROWS_IN_TRANSACTION": 413,
    "TOO_MANY_PARTICIPANTS": 413, "HOME_OPEN": 409, "TRANSACTION_RESOLVED": 409, "OUTCOME_KNOWN": 409,
    "TOO_MANY_RESOLUTIONS": 409, "TABLETS_OF_OTHER_NODES": 409, "NODE_SILENT": 503,
    "NO_MATERIALIZATION": 404, "FEED_MOVED": 409, "MATERIALIZED": 409, "TOPIC_REPLACED": 409,
    "TOO_MANY_MATERIALIZATIONS": 409,
    "CHANGE_FEED_CLOSED": 503, "CHANGE_TOO_LARGE": 413, "HAS_CHANGE_FEED": 409,
    "NO_CONSUMER": 404, "TOO_MANY_CONSUMERS": 409, "CONSUMER_OFFSET_CONFLICT": 409, "NO_SESSION": 404,
    "INVALID_EPOCH": 409, "ZOMBIE_EPOCH": 409,
    "OUT_OF_TABLET_MEMORY": 503, "STORE_OVERFLOWN": 503, "TOO_MANY_OVERLAPPING_STORES": 503, "TOO_MANY_STORES": 503,
    "TOO_MANY_EDEN_STORES": 503, "TOO_MANY_DYNAMIC_STORES": 503, "READ_FAN_IN_EXCEEDED": 503,
}  # fmt: skip
"""HTTP status of refusals that have another one than 400, by code."""


def yt_number(code: str) -> int | None:
    """Return the number that YT has for a code; None: it has none."""
    from pqbroker.tables.queues import QUEUE_NUMBERS
    from pqbroker.tables.sorted.write_refusals import YT_NUMBERS

    return YT_NUMBERS.get(code, QUEUE_NUMBERS.get(code))


async def told(answer: Awaitable[Any]) -> Any:
    """An answer; what a table refuses is a problem."""
    from pqbroker.tables.refusals import TableError

    try:
        return await answer
    except TableError as refusal:
        status = _STATUSES.get(refusal.code, 400)
        raise Problem(status, refusal.code, refusal.message, refusal.cure, yt_number(refusal.code)) from None


def served_by(commands: LoadedLater[Any], routes: str, name: str) -> Callable[[Call], Awaitable[Any]]:
    """Return the function `name` of commands that are loaded with the first call; what it refuses is a problem.
    `routes`: module of the routes, by which OpenAPI names the operation."""

    async def serve(call: Call) -> Any:
        return await told(getattr(await commands.get(), name)(call))

    serve.__module__, serve.__name__ = routes, name
    return serve

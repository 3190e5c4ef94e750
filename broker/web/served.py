"""Every route under /v1. The HTTP server and the OpenAPI document read this one table."""

from functools import cache
from typing import Any, Final

from pqbroker.broker.web.openapi import openapi
from pqbroker.broker.web.resources import (
    backups,
    blobs,
    cells,
    cleaning,
    configs,
    connections,
    cues,
    events,
    faults,
    group_reset,
    groups,
    key_commands,
    mirroring,
    node,
    observations,
    partitions,
    pools,
    producing,
    records,
    sessions,
    settings,
    sql,
    tablet_changes,
    tablets,
    topics,
    transactional_ids,
)
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.tables import materialization_routes as materializations
from pqbroker.broker.web.tables import routes as tables
from pqbroker.broker.web.tables import transaction_routes as transactions
from pqbroker.broker.web.tree import routes as tree


async def describe_routes(_: Call) -> Any:
    return _document()


@cache
def _document() -> Any:
    return openapi(ROUTES)


ROUTES: Final[tuple[Route, ...]] = (
    *topics.ROUTES,
    *configs.ROUTES,
    *records.ROUTES,
    *producing.ROUTES,
    *mirroring.ROUTES,
    *groups.ROUTES,
    *group_reset.ROUTES,
    *transactional_ids.ROUTES,
    *sessions.ROUTES,
    *partitions.ROUTES,
    *cleaning.ROUTES,
    *tables.ROUTES,
    *materializations.ROUTES,
    *transactions.ROUTES,
    *tree.ROUTES,
    *tablets.ROUTES,
    *tablet_changes.ROUTES,
    *key_commands.ROUTES,
    *blobs.ROUTES,
    *connections.ROUTES,
    *backups.ROUTES,
    *node.ROUTES,
    *events.ROUTES,
    *observations.ROUTES,
    *pools.ROUTES,
    *cells.ROUTES,
    *settings.ROUTES,
    *sql.ROUTES,
    *faults.ROUTES,
    *cues.ROUTES,
    Route("GET", "/v1/openapi.json", "This document", describe_routes, {"type": "object"}),
)

"""Every route under /v1. The HTTP server and the OpenAPI document read this one table."""

from typing import Any, Final

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.needs import written
from pqbroker.broker.web.openapi import openapi
from pqbroker.broker.web.queues import queue_routes as queues
from pqbroker.broker.web.replies import write_json
from pqbroker.broker.web.resources import (
    acls,
    backups,
    blobs,
    cells,
    cleaning,
    configs,
    connections,
    cues,
    events,
    faults,
    features,
    group_reset,
    groups,
    key_commands,
    mirroring,
    node,
    observations,
    partitions,
    pools,
    producing,
    quotas,
    records,
    restarts,
    rights,
    search,
    sessions,
    settings,
    sql,
    tablet_changes,
    tablets,
    topics,
    transactional_ids,
    users,
)
from pqbroker.broker.web.route_needs import needs_of
from pqbroker.broker.web.routing.loading import LoadedLater
from pqbroker.broker.web.routing.routes import Call, Route, Written
from pqbroker.broker.web.routing.schemas import TEXT, array_of, object_of
from pqbroker.broker.web.tables import materialization_routes as materializations
from pqbroker.broker.web.tables import routes as tables
from pqbroker.broker.web.tables import transaction_routes as transactions
from pqbroker.broker.web.tree import routes as tree


async def describe_routes(_: Call) -> Any:
    return await _document.get()


async def describe_needs(call: Call) -> Any:
    apis = [{"request": name, "needs": written(needs)} for name, needs in sorted(call.node.api_needs.items())]
    routes = [{"request": f"{route.method} {route.path}", "needs": written(needs_of(route))} for route in ROUTES]
    return {"apis": apis, "routes": routes}


_NEEDS = array_of(object_of({"request": TEXT, "needs": TEXT}))


_document: LoadedLater[Written] = LoadedLater(lambda: Written(write_json(openapi(ROUTES))))


ROUTES: Final[tuple[Route, ...]] = (
    *acls.ROUTES,
    *rights.ROUTES,
    *quotas.ROUTES,
    Route(
        "GET", "/v1/acls/needs", "List the rights that each request needs, of Kafka's protocol and over HTTP",
        describe_needs, object_of({"apis": _NEEDS, "routes": _NEEDS}), cluster=AclOperation.DESCRIBE,
        example={
            "apis": [{"request": "Fetch", "needs": "Read on topic"}],
            "routes": [{"request": "GET /v1/topics", "needs": "Describe on topic (others are left out)"}],
        },
    ),
    *topics.ROUTES,
    *configs.ROUTES,
    *records.ROUTES,
    *search.ROUTES,
    *producing.ROUTES,
    *mirroring.ROUTES,
    *groups.ROUTES,
    *group_reset.ROUTES,
    *transactional_ids.ROUTES,
    *users.ROUTES,
    *sessions.ROUTES,
    *partitions.ROUTES,
    *cleaning.ROUTES,
    *tables.ROUTES,
    *queues.ROUTES,
    *materializations.ROUTES,
    *transactions.ROUTES,
    *tree.ROUTES,
    *tablets.ROUTES,
    *tablet_changes.ROUTES,
    *key_commands.ROUTES,
    *blobs.ROUTES,
    *connections.ROUTES,
    *backups.ROUTES,
    *restarts.ROUTES,
    *node.ROUTES,
    *events.ROUTES,
    *observations.ROUTES,
    *pools.ROUTES,
    *cells.ROUTES,
    *settings.ROUTES,
    *features.ROUTES,
    *sql.ROUTES,
    *faults.ROUTES,
    *cues.ROUTES,
    Route("GET", "/v1/openapi.json", "This document", describe_routes, {"type": "object"}),
)

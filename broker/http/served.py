"""Every route under /v1. The HTTP server and the OpenAPI document read this one table."""

from functools import cache
from typing import Any, Final

from pqbroker.broker.http import (
    blobs,
    configs,
    faults,
    groups,
    key_commands,
    mirroring,
    partitions,
    producing,
    records,
    sessions,
    tablet_changes,
    tablets,
    topics,
)
from pqbroker.broker.http.openapi import openapi
from pqbroker.broker.http.routes import Call, Route


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
    *sessions.ROUTES,
    *partitions.ROUTES,
    *tablets.ROUTES,
    *tablet_changes.ROUTES,
    *key_commands.ROUTES,
    *blobs.ROUTES,
    *faults.ROUTES,
    Route("GET", "/v1/openapi.json", "This document", describe_routes, {"type": "object"}),
)

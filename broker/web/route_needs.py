"""Rights that each route needs, of the routes that ask for others than one on the cluster (`Route.cluster`)."""

from collections.abc import Mapping
from typing import Final

from pqbroker.broker.ground.access import AclOperation as Op
from pqbroker.broker.ground.needs import Need, on_cluster, on_group, on_topic, on_transactional_id
from pqbroker.broker.web.routing.routes import Route

_LEFT_OUT = "others are left out"
_OWN = "of transactions of others"
_NAMED = "each topic that the query names; a local file is the topic files.NAME"
_SEEN = (on_topic(Op.DESCRIBE),)
_READ = (on_topic(Op.READ),)
_WRITTEN = (on_topic(Op.WRITE),)
_CHANGED = (on_topic(Op.ALTER),)
_COMMITTED = (on_group(Op.READ), on_topic(Op.READ))

ROUTE_NEEDS: Final[Mapping[str, tuple[Need, ...]]] = {
    "GET /v1/topics": (on_topic(Op.DESCRIBE, _LEFT_OUT),),
    "POST /v1/topics": (on_topic(Op.CREATE, "or Create on cluster"),),
    "GET /v1/topics/{name}": _SEEN,
    "DELETE /v1/topics/{name}": (on_topic(Op.DELETE),),
    "POST /v1/topics/{name}/partitions": _CHANGED,
    "GET /v1/topics/{name}/configs": (on_topic(Op.DESCRIBE_CONFIGS),),
    "PATCH /v1/topics/{name}/configs": (on_topic(Op.ALTER_CONFIGS),),
    "GET /v1/topics/{name}/records": _READ,
    "POST /v1/topics/{name}/records": _WRITTEN,
    "POST /v1/topics/{name}/search": _READ,
    "POST /v1/topics/{name}/partitions/{partition}/records": _WRITTEN,
    "GET /v1/topics/{name}/partitions/{partition}": _SEEN,
    "POST /v1/topics/{name}/clean": (on_topic(Op.ALTER), on_topic(Op.DESCRIBE, "is enough to see what would be done")),
    "GET /v1/topics/{name}/cleaning": _SEEN,
    "GET /v1/groups": (on_group(Op.DESCRIBE, f"or Describe on cluster; {_LEFT_OUT}"),),
    "GET /v1/groups/{name}": (on_group(Op.DESCRIBE), on_topic(Op.DESCRIBE, _LEFT_OUT)),
    "DELETE /v1/groups/{name}": (on_group(Op.DELETE),),
    "POST /v1/groups/{name}/offsets": _COMMITTED,
    "POST /v1/groups/{name}/reset": _COMMITTED,
    "POST /v1/groups/{name}/commits": _COMMITTED,
    "POST /v1/groups/{name}/recreate": _COMMITTED,
    "GET /v1/transactional-ids": (on_transactional_id(Op.DESCRIBE, _LEFT_OUT),),
    "GET /v1/transactional-ids/{name}": (on_transactional_id(Op.DESCRIBE),),
    "POST /v1/transactional-ids/{name}/abort": (on_transactional_id(Op.WRITE),),
    "GET /v1/tables": (on_topic(Op.DESCRIBE, _LEFT_OUT),),
    "POST /v1/tables": (
        on_topic(Op.CREATE, "or Create on cluster"), on_topic(Op.ALTER, "of the topic of a change feed"),
        on_topic(Op.READ, "of a table with a change feed: its readers see the rows"),
    ),
    "GET /v1/tables/{name}": _SEEN,
    "PATCH /v1/tables/{name}": (
        on_topic(Op.ALTER_CONFIGS), on_topic(Op.READ, "to begin a change feed: its readers see the rows"),
    ),
    "DELETE /v1/tables/{name}": (on_topic(Op.DELETE),),
    "GET /v1/tables/{name}/tablets": _SEEN,
    "GET /v1/tables/{name}/inside": _READ,
    "GET /v1/tables/{name}/tablets/{tablet}/inside": _READ,
    "GET /v1/tables/{name}/compaction": _READ,
    "POST /v1/tables/{name}/rows": _WRITTEN,
    "DELETE /v1/tables/{name}/rows": _WRITTEN,
    "POST /v1/tables/{name}/lookup": _READ,
    "POST /v1/tables/{name}/staged-rows": _WRITTEN,
    "POST /v1/tables/{name}/staged-rows/commit": _WRITTEN,
    "GET /v1/tables/{name}/rows": _READ,
    "POST /v1/tables/{name}/trim": (on_topic(Op.DELETE),),
    "POST /v1/tables/{name}/alter": (
        on_topic(Op.ALTER), on_topic(Op.ALTER_CONFIGS, "of a topic that was not made as a table"),
    ),
    "POST /v1/tables/{name}/remount": _CHANGED,
    "POST /v1/tables/{name}/reshard": _CHANGED,
    "POST /v1/tables/{name}/mount": _CHANGED,
    "POST /v1/tables/{name}/unmount": _CHANGED,
    "POST /v1/tables/{name}/freeze": _CHANGED,
    "POST /v1/tables/{name}/unfreeze": _CHANGED,
    "GET /v1/materializations": (on_topic(Op.DESCRIBE, _LEFT_OUT),),
    "POST /v1/materializations": (
        on_topic(Op.READ, "of the topic"), on_topic(Op.WRITE, "of the table, and of the topic of dead letters"),
    ),
    "GET /v1/materializations/{name}": (on_topic(Op.DESCRIBE, "of the table"),),
    "POST /v1/materializations/{name}/pause": (on_topic(Op.ALTER, "of the table"),),
    "POST /v1/materializations/{name}/resume": (
        on_topic(Op.ALTER, "of the table"), on_topic(Op.READ, "of the topic"),
    ),
    "DELETE /v1/materializations/{name}": (on_topic(Op.ALTER, "of the table"),),
    "GET /v1/queues": (on_topic(Op.DESCRIBE, _LEFT_OUT),),
    "GET /v1/queues/{name}": _SEEN,
    "PATCH /v1/queues/{name}": (on_topic(Op.ALTER_CONFIGS),),
    "POST /v1/queues/{name}/consumers": (on_topic(Op.ALTER_CONFIGS), on_group(Op.READ)),
    "DELETE /v1/queues/{name}/consumers/{consumer}": (on_topic(Op.ALTER_CONFIGS), on_group(Op.READ)),
    "GET /v1/queues/{name}/consumers/{consumer}": (on_topic(Op.DESCRIBE), on_group(Op.DESCRIBE)),
    "GET /v1/queues/{name}/rows": (on_topic(Op.READ), on_group(Op.READ, "with a consumer")),
    "POST /v1/queues/{name}/advance": (on_topic(Op.READ), on_group(Op.READ)),
    "GET /v1/queues/{name}/producer-sessions": _SEEN,
    "POST /v1/queues/{name}/producer-sessions": _WRITTEN,
    "DELETE /v1/queues/{name}/producer-sessions": _WRITTEN,
    "POST /v1/queues/{name}/push": _WRITTEN,
    "GET /v1/features": (on_cluster(Op.DESCRIBE),),
    "PATCH /v1/features": (on_cluster(Op.ALTER),),
    "GET /v1/tokens": (on_cluster(Op.DESCRIBE, "to see those of others"),),
    "POST /v1/tokens": (on_cluster(Op.ALTER, "for another user"),),
    "DELETE /v1/tokens/{name}": (on_cluster(Op.ALTER, "of another user"),),
    "POST /v1/transactions": (on_transactional_id(Op.WRITE, "with a transactional id"),),
    "GET /v1/transactions": (on_cluster(Op.DESCRIBE, _OWN),),
    "GET /v1/transactions/{transaction}": (on_cluster(Op.DESCRIBE, _OWN),),
    "POST /v1/transactions/{transaction}/ping": (),
    "POST /v1/transactions/{transaction}/commit": (
        on_topic(Op.WRITE, "of each table that it writes"), on_transactional_id(Op.WRITE, "with a transactional id"),
        on_group(Op.READ, "with offsets"), on_topic(Op.READ, "of the topics of offsets"),
    ),
    "POST /v1/transactions/{transaction}/abort": (on_cluster(Op.ALTER, "to abort those of others, by force"),),
    "GET /v1/tree/{path}": (on_topic(Op.DESCRIBE, _LEFT_OUT), on_cluster(Op.DESCRIBE, "below //sys")),
    "PUT /v1/tree/{path}": (
        on_topic(Op.ALTER_CONFIGS), on_topic(Op.DESCRIBE), on_cluster(Op.ALTER, "below //sys"),
    ),
    "GET /v1/settings": (on_cluster(Op.DESCRIBE_CONFIGS),),
    "PATCH /v1/settings": (on_cluster(Op.ALTER_CONFIGS),),
    "POST /v1/sql": (on_topic(Op.READ, _NAMED),),
    "GET /v1/rights": (),
    "GET /v1/openapi.json": (),
}  # fmt: skip
"""Rights by method and path. A transaction serves the principal that began it."""


def needs_of(route: Route) -> tuple[Need, ...]:
    """Return the rights that a route needs. LookupError for one that is not in the table."""
    if route.cluster is not None:
        return (on_cluster(route.cluster),)
    return ROUTE_NEEDS[f"{route.method} {route.path}"]

"""Rights of the caller: what it may do with the cluster, and with a topic or a group that it names. The console offers
what is in it. It says nothing of which topics and groups exist."""

from typing import Any, Final

from pqbroker.broker.ground.access import (
    CLUSTER,
    AclKind,
    AclOperation,
    AclResource,
    is_allowed,
    is_allowed_on_any,
)
from pqbroker.broker.services.topics.finding import topic_resource
from pqbroker.broker.web.routing.routes import Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import TEXT, Schema, array_of, nullable, object_of

_BOOLEAN: Schema = {"type": "boolean"}
_SHOWN: Final = (
    AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER,
    AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
)  # fmt: skip


async def show(call: Call) -> Any:
    topic, group = call.query.get("topic"), call.query.get("group")
    return {
        "user": call.principal.name,
        "is_guarded": call.node.access is not None,
        "console_writes": call.node.settings.console_writes,
        "cluster": _allowed(call, CLUSTER),
        "topic": None if topic is None else _allowed(call, topic_resource(topic)),
        "group": None if group is None else _allowed(call, AclResource(AclKind.GROUP, group)),
        "creates_topics": is_allowed(call, AclOperation.CREATE)
        or is_allowed_on_any(call, AclOperation.CREATE, AclKind.TOPIC),
    }


def _allowed(call: Call, resource: AclResource) -> list[str]:
    return [operation.name.lower() for operation in _SHOWN if is_allowed(call, operation, resource)]


ROUTES = (
    Route(
        "GET", "/v1/rights", "Show what the caller may do with the cluster, and with a topic and a group", show,
        object_of(
            {
                "user": TEXT, "is_guarded": _BOOLEAN, "console_writes": _BOOLEAN, "cluster": array_of(TEXT),
                "topic": nullable(array_of(TEXT)), "group": nullable(array_of(TEXT)), "creates_topics": _BOOLEAN,
            }
        ),
        (
            Parameter("topic", TEXT, "Show what the caller may do with a topic or table of this name."),
            Parameter("group", TEXT, "Show what the caller may do with a group of this name."),
        ),
        example={
            "user": "ann", "is_guarded": True, "console_writes": True, "cluster": [], "topic": ["read", "describe"],
            "group": None, "creates_topics": False,
        },
    ),
)  # fmt: skip

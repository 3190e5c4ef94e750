"""Settings of this node: each with its value, where that comes from and what it means; changed by a merge patch."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.services.configs.changes import Resource, alter
from pqbroker.broker.services.configs.location_configs import with_locations
from pqbroker.broker.services.configs.node_settings import EVERY_NODE
from pqbroker.broker.services.configs.operations import Change, Operation
from pqbroker.broker.services.configs.texts import ConfigText, Source, broker_texts
from pqbroker.broker.web.resources.configs import PATCH, config_texts
from pqbroker.broker.web.routing.routes import AFTER_NAME, LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, Schema, array_of, nullable, object_of
from pqbroker.conf.dynamic import is_dynamic

_BOOLEAN: Schema = {"type": "boolean"}
_SETTING = object_of(
    {
        "name": TEXT, "value": nullable(TEXT), "source": TEXT, "type": TEXT, "default": TEXT, "effective": _BOOLEAN,
        "dynamic": _BOOLEAN, "documentation": TEXT,
    }
)  # fmt: skip
_SETTINGS = object_of({"cell": TEXT, "node": COUNT, "settings": array_of(_SETTING), "next": nullable(TEXT)})
_EXAMPLE = {
    "cell": "0",
    "node": 1,
    "settings": [
        {
            "name": "log.retention.ms", "value": "172800000", "source": "DYNAMIC_BROKER", "type": "LONG", "default": "",
            "effective": True, "dynamic": True, "documentation": "Milliseconds to keep records.",
        }
    ],
    "next": None,
}  # fmt: skip


async def describe(call: Call) -> Any:
    check_access(call, AclOperation.DESCRIBE_CONFIGS)
    texts = [one for one in _texts(call) if one.source is not Source.DEFAULT or not call.query.get("changed", False)]
    behind = bisect_right(texts, call.query.get("after", ""), key=lambda one: one.declaration.name)
    page, has_more = call.page(texts[behind:])
    return _show(call, page, page[-1].declaration.name if has_more else None)


async def change(call: Call) -> Any:
    changes = call.body["settings"]
    texts = config_texts({name: value for name, value in changes.items() if value is not None})
    wanted = [Change(name, Operation.SET, text) for name, text in texts.items()]
    wanted += [Change(name, Operation.DELETE, None) for name, value in changes.items() if value is None]
    name = EVERY_NODE if call.body.get("every_node", False) else str(call.node.settings.node_id)
    await alter(call, (Resource.BROKER, name), wanted, replaces=False, validate_only=False)
    return _show(call, [one for one in _texts(call) if one.declaration.name in changes], None)


def _texts(call: Call) -> list[ConfigText]:
    """Return the node's settings, sorted by name."""
    found = with_locations(call.node, broker_texts(call.node.cell.current.settings.layers))
    return sorted(found, key=lambda one: one.declaration.name)


def _show(call: Call, texts: Sequence[ConfigText], following: str | None) -> Any:
    return {
        "cell": call.cell.name,
        "node": call.node.settings.node_id,
        "settings": [_setting(one) for one in texts],
        "next": following,
    }


def _setting(text: ConfigText) -> dict[str, Any]:
    """Return a setting without its value if that is a password."""
    declaration = text.declaration
    return {
        "name": declaration.name,
        "value": text.value,
        "source": text.source.name,
        "type": declaration.kind.name,
        "default": declaration.format(declaration.default),
        "effective": declaration.effective,
        "dynamic": is_dynamic(declaration.name),
        "documentation": text.documentation,
    }


ROUTES = (
    Route(
        "GET", "/v1/settings", "List the settings of this node by name", describe, _SETTINGS,
        (Parameter("changed", _BOOLEAN, "List only those that are not at their default."), AFTER_NAME, LIMIT),
        example=_EXAMPLE,
    ),
    Route(
        "PATCH", "/v1/settings", "Change settings while the node runs; null takes one back to its value at the start",
        change, _SETTINGS, body=object_of({"settings": PATCH}, {"every_node": _BOOLEAN}),
        example=_EXAMPLE, body_example={"settings": {"log.retention.ms": 172800000}},
    ),
)  # fmt: skip

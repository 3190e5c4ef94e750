"""A topic's configs: each with its value, where that comes from and what it means; changed by a merge patch."""

import json
from collections.abc import Mapping
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.configs.changes import Resource, alter
from pqbroker.broker.services.configs.operations import Change, Operation
from pqbroker.broker.services.configs.texts import topic_texts
from pqbroker.broker.web.routing.problems import of_kafka
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import TEXT, Schema, array_of, object_of
from pqbroker.protocol.errors import ErrorCode

_BOOLEAN: Schema = {"type": "boolean"}
_VALUE: Schema = {"type": ["string", "integer", "number", "boolean", "object"]}
CHANGES: Schema = {"type": "object", "additionalProperties": _VALUE}
PATCH: Schema = {"type": "object", "additionalProperties": {**_VALUE, "type": [*_VALUE["type"], "null"]}}
_CONFIGS = object_of(
    {
        "cell": TEXT,
        "configs": array_of(
            object_of(
                {
                    "name": TEXT, "value": TEXT, "source": TEXT, "type": TEXT, "default": TEXT, "effective": _BOOLEAN,
                    "documentation": TEXT,
                }
            )
        )
    }
)  # fmt: skip


async def describe(call: Call) -> Any:
    stored = call.topic(AclOperation.DESCRIBE_CONFIGS).record.config
    return {
        "cell": call.cell.name,
        "configs": [
            {
                "name": text.declaration.name,
                "value": text.value,
                "source": text.source.name,
                "type": text.declaration.kind.name,
                "default": text.declaration.format(text.declaration.default),
                "effective": text.declaration.effective,
                "documentation": text.documentation,
            }
            for text in topic_texts(stored, call.node.cell.current.settings.layers)
        ]
    }


async def change(call: Call) -> Any:
    changes = call.body["configs"]
    texts = config_texts({name: value for name, value in changes.items() if value is not None})
    wanted = [Change(name, Operation.SET, text) for name, text in texts.items()]
    wanted += [Change(name, Operation.DELETE, None) for name, value in changes.items() if value is None]
    resource = (Resource.TOPIC, call.topic(AclOperation.ALTER_CONFIGS).record.name)
    await alter(call, resource, wanted, replaces=False, validate_only=False)
    return await describe(call)


def config_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Config values as Kafka has them, in text; objects become JSON."""
    return {name: _text(name, value) for name, value in values.items()}


def _text(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text.isascii() and not _is_utf8(text):
        raise of_kafka(ErrorCode.INVALID_CONFIG, f"the value of {name} is no text")
    return text


def _is_utf8(text: str) -> bool:
    """Return True if a text has no half of a surrogate pair, which JSON can name and no store can keep."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

_EXAMPLE = {
    "cell": "0",
    "configs": [
        {
            "name": "retention.ms", "value": "86400000", "source": "DYNAMIC_TOPIC", "type": "LONG",
            "default": "604800000", "effective": True, "documentation": "…",
        }
    ],
}  # fmt: skip

ROUTES = (
    Route("GET", "/v1/topics/{name}/configs", "List a topic's configs", describe, _CONFIGS, example=_EXAMPLE),
    Route(
        "PATCH", "/v1/topics/{name}/configs", "Set configs of a topic; null takes one back to its default", change,
        _CONFIGS, body=object_of({"configs": PATCH}),
        body_example={"configs": {"retention.ms": 86400000}}, example=_EXAMPLE,
    ),
)  # fmt: skip

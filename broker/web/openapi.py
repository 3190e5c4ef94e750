"""The OpenAPI document of the routes, made from the same table that they are served from."""

import re
from collections.abc import Iterable
from typing import Any

from pqbroker import __version__
from pqbroker.broker.web.routing.problems import ERROR
from pqbroker.broker.web.routing.routes import Route, path_schema
from pqbroker.broker.web.routing.schemas import Schema
from pqbroker.broker.web.routing.stream_forms import LINES, StreamForm

_NAME = re.compile(r"{(\w+)}")


def openapi(routes: Iterable[Route]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pqbroker",
            "version": __version__,
            "description": "Administration and a look inside. Programs that read and write use Kafka's protocol.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def _operation(route: Route) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    if route.answer is not None:
        answer["content"] = _json(route.answer, route.example)
    if route.streams is not None:
        forms = {form.content_type: _stream(form, *route.streams) for form in route.forms}
        answer["content"] = answer.get("content", {}) | forms | {other: {} for other in route.other_types}
    operation = {
        "operationId": route.serve.__module__.rpartition(".")[2] + "_" + route.serve.__name__,
        "summary": route.summary,
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": path_schema(name)}
                for name in _NAME.findall(route.path)
            ),
            *(
                {
                    "name": one.name,
                    "in": "query",
                    "required": one.required,
                    "description": one.doc,
                    "schema": one.schema,
                    **({} if one.example is None else {"example": one.example}),
                }
                for one in route.parameters
            ),
        ],
        "responses": {
            str(route.status): answer,
            "default": {
                "description": "An error: what happened, and what helps.",
                "content": _json({"$ref": "#/components/schemas/Error"}),
            },
        },
    }
    if route.body is not None:
        content = _json(route.body, route.body_example)
        if route.lines:
            items = route.body["properties"][route.lines]["items"]
            content[LINES.content_type] = {"schema": {"type": "string", "contentSchema": items}}
        content |= {other: {} for other in route.raw_types}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _json(schema: Schema, example: Any = None) -> dict[str, Any]:
    return {"application/json": {"schema": schema, **({} if example is None else {"example": example})}}


def _stream(form: StreamForm, item: Schema, example: Any) -> dict[str, Any]:
    """OpenAPI 3.1 has no word for a stream: the schema of an item stands in a text."""
    written = form.write([example], "", "").decode()
    schema = {"type": "string", "contentMediaType": form.content_type, "contentSchema": item}
    return {"schema": schema, "example": written}

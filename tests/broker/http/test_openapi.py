"""The OpenAPI document is one, says what is served, and the answers are what it says."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from pqbroker.broker.http.openapi import openapi
from pqbroker.broker.http.served import ROUTES
from tests.broker.http.conftest import Web


async def test_the_document_is_served_and_valid(web: Web) -> None:
    status, document = await web.ask("GET", "/v1/openapi.json")
    assert status == 200
    validate(document)
    assert document == openapi(ROUTES)
    served = {(route.method.lower(), route.path) for route in ROUTES}
    assert {(method, path) for path, methods in document["paths"].items() for method in methods} == served


async def test_answers_are_as_documented(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(test_commands=True)
    await web.node.create_topic("t")
    await web.node.produce("t", b"a")
    bodies: dict[tuple[str, str], Any] = {
        ("POST", "/v1/topics"): {"name": "u"},
        ("POST", "/v1/topics/{name}/partitions"): {"count": 2},
        ("PATCH", "/v1/topics/{name}/configs"): {"configs": {"retention.ms": 1}},
        ("POST", "/v1/tablets/{tablet}/restart"): {},
        ("POST", "/v1/topics/{name}/partitions/{partition}/records"): {"offset": 10, "records": [{"value": "v"}]},
        ("POST", "/v1/groups/{name}/commits"): {
            "topic": "t", "partition": 0, "offset": 1, "session": {"name": "s", "generation": 1, "step": 0},
        },
        ("POST", "/v1/groups/{name}/recreate"): {"topic": "t", "partition": 0},
        ("POST", "/v1/faults"): {"fault": "clear"},
        ("POST", "/v1/tablets/{tablet}/commands"): {"commands": [{"read_range": {}}]},
        ("POST", "/v1/tablets/{tablet}/channels/{channel}"): {"group": 0},
        ("POST", "/v1/topics/{name}/records"): {"records": [{"value": "v"}]},
        ("POST", "/v1/groups/{name}/offsets"): {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]},
    }
    _, topic = await web.ask("GET", "/v1/topics/t")
    names = {"name": "t", "partition": 0, "channel": 2, "tablet": topic["partitions"][0]["tablet"]}
    await web.ask("POST", "/v1/groups/t/offsets", bodies["POST", "/v1/groups/{name}/offsets"])
    for route in sorted(ROUTES, key=lambda route: (route.method == "DELETE", route.path)):
        path = route.path.format_map(names)
        if required := {parameter.name: names[parameter.name] for parameter in route.parameters if parameter.required}:
            path += f"?{urlencode(required)}"
        status, answer = await web.ask(route.method, path, bodies.get((route.method, route.path)))
        assert status == route.status, (route.method, path, answer)
        if route.answer is None:
            assert answer is None
        else:
            Draft202012Validator(dict(route.answer)).validate(answer)

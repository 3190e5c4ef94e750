"""Records of topics that name a registry: decoded over HTTP, and raw with the reason where that fails."""

import io
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.broker.web.conftest import Web
from tests.support.schema_registry import TestRegistry, framed, serving

ORDER: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]},
    ],
}  # fmt: skip


@pytest.fixture
def registry() -> Iterator[TestRegistry]:
    with serving() as running:
        yield running


@pytest.fixture
async def web(serve: Callable[..., Awaitable[Web]], registry: TestRegistry) -> Web:
    return await serve(registries=(f"main={registry.address}",), registry_failure_ms=0)


def order(number: int, note: str | None = None) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(ORDER), {"id": number, "note": note})
    return content.getvalue()


async def decoded(web: Web, topic: str = "t", query: str = "") -> list[Any]:
    status, document = await web.ask("GET", f"/v1/topics/{topic}/records{query}")
    assert status == 200, document
    return [record.get("decoded") for record in document["records"]]


async def test_values_are_shown_by_the_schema_of_the_registry(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", value_registry="main")
    number = registry.add("t-value", ORDER)
    await web.node.produce("t", framed(number, order(7, "ü")), b"no frame", framed(99, b""))
    good, unframed, unknown = await decoded(web)
    assert good == {"value": {"schema": number, "type": "AVRO", "content": {"id": 7, "note": "ü"}}}
    assert unframed["value"]["code"] == "NOT_FRAMED"
    assert unknown["value"]["code"] == "SCHEMA_UNKNOWN"
    assert await decoded(web, query="?decode=false") == [None] * 3
    asked = len(registry.paths)
    assert (await decoded(web, query="?limit=1"))[0] == good
    assert len(registry.paths) == asked, "a schema is fetched once"


async def test_records_stay_raw_with_the_reason_while_the_registry_is_down(web: Web, registry: TestRegistry) -> None:
    await web.node.create_topic("t", value_registry="main")
    await web.node.create_topic("lost", value_registry="other")
    number = registry.add("t-value", ORDER)
    registry.is_down = True
    await web.node.produce("t", framed(number, order(1)))
    await web.node.produce("lost", framed(number, order(1)))
    (found,) = await decoded(web)
    assert found["value"]["code"] == "REGISTRY_UNAVAILABLE"
    assert "the registry main: it answered 503" in found["value"]["reason"]
    (found,) = await decoded(web, "lost")
    assert "the registry other: no registry of this name stands in pqbroker.registries" in found["value"]["reason"]
    registry.is_down = False
    (found,) = await decoded(web)
    assert found["value"]["content"] == {"id": 1, "note": None}


async def test_a_registry_gets_the_credentials_of_its_file(
    serve: Callable[..., Awaitable[Web]], registry: TestRegistry, tmp_path: Path
) -> None:
    file = tmp_path / "registry.properties"
    web = await serve(
        registries=(f"main={registry.address}",), registry_config_files=(f"main={file}",), registry_failure_ms=0
    )
    await web.node.create_topic("t", value_registry="main")
    number = registry.add("t-value", ORDER)
    registry.authorization = "Basic bWU6c2VjcmV0"
    await web.node.produce("t", framed(number, order(1)))
    (found,) = await decoded(web)
    assert "cannot read" in found["value"]["reason"]
    file.write_text("basic.auth.user.info = me:wrong")
    (found,) = await decoded(web)
    assert "it answered 401" in found["value"]["reason"]
    assert "wrong" not in str(found)
    file.write_text("basic.auth.user.info = me:secret")
    (found,) = await decoded(web)
    assert found["value"]["content"]["id"] == 1


async def test_more_answers_than_may_be_decoded_at_once_stay_raw(
    serve: Callable[..., Awaitable[Web]], registry: TestRegistry
) -> None:
    web = await serve(registries=(f"main={registry.address}",), registry_decodings_max=0)
    await web.node.create_topic("t", value_registry="main")
    await web.node.produce("t", framed(registry.add("t-value", ORDER), order(1)))
    (found,) = await decoded(web)
    assert found["value"]["code"] == "TOO_MANY_DECODINGS"
    assert "pqbroker.registry.decodings.max = 0" in found["value"]["reason"]

from typing import Any

import pytest

from pqbroker.conf.declare import declarations
from pqbroker.conf.topic import TopicConfig
from tests.broker.web.conftest import Web


def of(document: Any, name: str) -> tuple[str, str]:
    found = next(config for config in document["configs"] if config["name"] == name)
    return found["value"], found["source"]


async def test_every_config_is_listed_with_its_source_and_meaning(web: Web) -> None:
    await web.node.create_topic("t", retention_ms="1000")
    status, document = await web.ask("GET", "/v1/topics/t/configs")
    assert status == 200
    assert [config["name"] for config in document["configs"]] == list(declarations(TopicConfig))
    assert all(config["documentation"] for config in document["configs"])
    assert of(document, "retention.ms") == ("1000", "DYNAMIC_TOPIC")
    assert of(document, "retention.bytes") == ("-1", "DEFAULT")


async def test_a_patch_sets_some_resets_others_and_keeps_the_rest(web: Web) -> None:
    await web.node.create_topic("t", retention_ms="1000", retention_bytes="5")
    patch = {"configs": {"retention.ms": None, "max.message.bytes": 2000, "preallocate": True}}
    status, document = await web.ask("PATCH", "/v1/topics/t/configs", patch)
    assert status == 200
    assert of(document, "retention.ms") == ("604800000", "DEFAULT")
    assert of(document, "max.message.bytes") == ("2000", "DYNAMIC_TOPIC")
    assert of(document, "preallocate") == ("true", "DYNAMIC_TOPIC")
    assert of(document, "retention.bytes") == ("5", "DYNAMIC_TOPIC")
    topic = web.node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert topic.config.max_message_bytes == 2000


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"retention.ms": "x"}, "INVALID_CONFIG"),
        ({"no.such": "1"}, "INVALID_CONFIG"),
        ({"message.timestamp.type": "\ud800"}, "INVALID_CONFIG"),
        ({"retention.ms": [1]}, "INVALID_BODY"),
        ({"\ud800": "1"}, "INVALID_CONFIG"),
        ({"\ud800": [1]}, "INVALID_BODY"),
    ],
)
async def test_a_patch_that_cannot_be_changes_nothing(web: Web, configs: Any, code: str) -> None:
    await web.node.create_topic("t")
    refused = await web.refusal("PATCH", "/v1/topics/t/configs", {"configs": {"retention.bytes": 7, **configs}})
    assert refused[:2] == (400, code)
    topic = web.node.server.node.cell.current.topics.get("t")
    assert topic is not None
    assert topic.record.config == {}


async def test_configs_of_no_topic_are_not_found(web: Web) -> None:
    for method, body in (("GET", None), ("PATCH", {"configs": {}})):
        assert (await web.refusal(method, "/v1/topics/t/configs", body))[0] == 404

"""Levels of features: set by UpdateFeatures and over HTTP, seen in ApiVersions, kept over restarts."""

from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pqbroker.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.broker.web.conftest import Web
from tests.broker.web.test_tables import reopened
from tests.broker.wire import Client

UPGRADE, SAFE, UNSAFE = 1, 2, 3
NAME = "transaction.version"


async def update(client: Client, *wanted: tuple[str, int, int], version: int = 2, dry: bool = False) -> Any:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in wanted]
    answer: UpdateFeaturesResponse = await client.ask(
        UpdateFeaturesRequest(feature_updates=keys, validate_only=dry), version
    )
    return answer


async def finalized(client: Client) -> tuple[dict[str, int], int]:
    """Return the levels that clients go by, and their epoch."""
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer: ApiVersionsResponse = await client.ask(request, 4)
    return {one.name: one.max_version_level for one in answer.finalized_features}, answer.finalized_features_epoch


async def test_a_level_is_lowered_at_once_and_stays_so_after_a_restart(web: Web) -> None:
    client = await web.node.connect()
    assert await finalized(client) == ({"group.version": 1, "metadata.version": 30, NAME: 2}, 0)
    assert (await update(client, (NAME, 1, SAFE))).error_code is ErrorCode.NONE
    assert await finalized(client) == ({"group.version": 1, "metadata.version": 30, NAME: 1}, 1)
    await web.ask("POST", "/v1/topics", {"name": "t"})
    await reopened(web, "t")
    client = await web.node.connect()
    assert await finalized(client) == ({"group.version": 1, "metadata.version": 30, NAME: 1}, 1)
    await update(client, (NAME, 0, UNSAFE))
    assert await finalized(client) == ({"group.version": 1, "metadata.version": 30}, 2)
    await update(client, (NAME, 2, UPGRADE))
    assert await finalized(client) == ({"group.version": 1, "metadata.version": 30, NAME: 2}, 3)


async def test_a_dry_run_and_the_level_of_now_change_nothing(web: Web) -> None:
    client = await web.node.connect()
    assert (await update(client, (NAME, 1, SAFE), dry=True)).error_code is ErrorCode.NONE
    assert (await update(client, (NAME, 2, SAFE))).error_code is ErrorCode.NONE
    assert (await update(client)).error_code is ErrorCode.NONE
    assert await finalized(client) == ({"group.version": 1, "metadata.version": 30, NAME: 2}, 0)


@pytest.mark.parametrize(
    ("name", "level", "kind", "message"),
    [
        (NAME, 1, UPGRADE, "without setting the upgrade type to either safe or unsafe downgrade."),
        (NAME, 3, UPGRADE, "Local controller 1 only supports versions 0-2"),
        (NAME, -1, SAFE, "A feature version cannot be less than 0."),
        (NAME, 1, 0, "The controller does not support the given upgrade type."),
        ("no.such", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("no.such", 0, UNSAFE, "Feature no.such not found."),
        ("metadata.version", 29, SAFE, "because it might delete metadata information."),
        ("metadata.version", 29, UNSAFE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
async def test_what_kafka_refuses_is_refused_in_its_words(
    web: Web, name: str, level: int, kind: int, message: str
) -> None:
    client = await web.node.connect()
    answer = await update(client, (NAME, 2, UPGRADE), (name, level, kind))
    assert answer.error_code is ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message.startswith("The update failed for all features since the following feature")
    assert answer.error_message.endswith(message)
    assert (await finalized(client))[1] == 0


async def test_a_raise_above_the_level_of_now_is_no_downgrade(web: Web) -> None:
    client = await web.node.connect()
    await update(client, (NAME, 0, SAFE))
    answer = await update(client, (NAME, 1, SAFE))
    assert answer.error_message.endswith("Can't downgrade to a newer version.")


async def test_one_wrong_update_leaves_all_levels_as_they_were(web: Web) -> None:
    client = await web.node.connect()
    answer = await update(client, (NAME, 1, SAFE), ("no.such", 1, UPGRADE))
    assert answer.error_code is ErrorCode.INVALID_UPDATE_VERSION
    assert (await finalized(client))[0][NAME] == 2


@pytest.mark.parametrize("version", [0, 1])
async def test_earlier_versions_have_a_result_for_each_feature(web: Web, version: int) -> None:
    client = await web.node.connect()
    answer = await update(client, (NAME, 2, UPGRADE), version=version)
    assert [(one.feature, one.error_code) for one in answer.results] == [(NAME, ErrorCode.NONE)]


async def test_a_request_names_no_more_features_than_its_limit(web: Web) -> None:
    client = await web.node.connect()
    answer = await update(client, *((f"f{number}", 1, UPGRADE) for number in range(101)))
    assert answer.error_code is ErrorCode.INVALID_REQUEST


async def test_levels_are_listed_and_set_over_http(web: Web) -> None:
    status, answer = await web.ask("PATCH", "/v1/features", {"levels": {NAME: 1}, "downgrade": True})
    assert (status, answer["epoch"]) == (200, 1)
    assert {"name": NAME, "least": 0, "greatest": 2, "level": 1} in answer["features"]
    assert (await web.ask("GET", "/v1/features"))[1] == answer
    assert (await finalized(await web.node.connect()))[0][NAME] == 1
    status, code, _ = await web.refusal("PATCH", "/v1/features", {"levels": {NAME: 0}})
    assert (status, code) == (400, "INVALID_UPDATE_VERSION")
    for wrong in ({}, {NAME: "1"}, {NAME: True}):
        assert (await web.refusal("PATCH", "/v1/features", {"levels": wrong}))[0] == 400

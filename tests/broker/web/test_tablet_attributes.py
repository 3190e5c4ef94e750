"""Attributes of a table act by tablet: each tablet takes what is set at its own mount or remount, and no other does."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pqbroker.pq.serving.offsets import nobody_knows
from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.tablets.scheme_state import TopicRecord
from tests.broker.web.conftest import Web
from tests.broker.web.test_cells import opened
from tests.broker.web.test_tables import NAME, create, insert, reopened, tablets

TABLE = f"/v1/tables/{NAME}"
CONFIGS = f"/v1/topics/{NAME}/configs"
SOON = {"min_data_versions": 0, "max_data_versions": 1, "min_data_ttl": 0, "max_data_ttl": 1000}
"""Rows go after a second."""
LATER = 60_000


async def post(web: Web, verb: str, *indexes: int, **more: Any) -> Any:
    """A command for the tablets from the first to the last index, all without one."""
    named = {"first_tablet_index": indexes[0], "last_tablet_index": indexes[-1]} if indexes else {}
    status, answer = await web.ask("POST", f"{TABLE}/{verb}", {**named, **more})
    assert status == 200, answer
    return answer


async def set_to(web: Web, **attributes: Any) -> Any:
    status, answer = await web.ask("PATCH", TABLE, {"attributes": attributes})
    assert status == 200, answer
    return answer


async def acting(web: Web, name: str = "max_data_ttl") -> Sequence[Any]:
    """An attribute as it acts in each tablet, by the list of tablets; the tree says the same."""
    found = [one[name] for one in await tablets(web, "mounted_attributes")]
    for tablet, value in zip(await tablets(web, "tablet_id"), found, strict=True):
        status, config = await web.ask("GET", f"/v1/tree/sys/tablets/{tablet}/orchid/config")
        assert (status, config[name]) == (200, value)
    return found


async def retention(web: Web) -> Any:
    """The topic's retention.ms as Kafka's clients see it."""
    _, found = await web.ask("GET", CONFIGS)
    return next(one["value"] for one in found["configs"] if one["name"] == "retention.ms")


async def filled(web: Web, **more: Any) -> None:
    """Three tablets with a row each, which lies in the body; another one behind it keeps it from being the last."""
    await create(web, tablet_count=3, **more)
    for _ in range(2):
        for index in range(3):  # they may live in several cells
            await insert(web, {"id": index, "$tablet_index": index})
        for verb in ("freeze", "unfreeze"):
            await post(web, verb)


async def aged(web: Web, by_ms: int = 2000) -> Sequence[int]:
    """The first row that each tablet has after a while."""
    web.node.clock.now_ms += by_ms
    await opened(web).topics.retain(nobody_knows)
    found: Sequence[int] = await tablets(web, "trimmed_row_count")
    return found


async def test_a_pending_max_data_ttl_deletes_rows_of_the_tablet_that_was_mounted_alone(web: Web) -> None:
    await filled(web)
    await set_to(web, **SOON)
    assert await aged(web) == [0, 0, 0]
    await post(web, "unmount", 0)
    await post(web, "mount", 0)
    assert await acting(web) == [1000, 1_800_000, 1_800_000]
    assert await aged(web) == [2, 0, 0]
    await reopened(web)
    assert await aged(web) == [2, 0, 0]
    assert await acting(web) == [1000, 1_800_000, 1_800_000]
    await post(web, "remount")
    assert await aged(web) == [2, 2, 2]


async def test_a_remount_of_a_range_reaches_its_tablets_alone(web: Web) -> None:
    await filled(web)
    await set_to(web, **SOON)
    table = await post(web, "remount", 1, 2)
    assert await acting(web) == [1_800_000, 1000, 1000]
    assert await aged(web) == [0, 2, 2]
    assert table["attributes"]["max_data_ttl"] == 1000
    assert "max_data_ttl" not in table["mounted_attributes"], "its tablets differ in it"
    assert table["mounted_attributes"]["max_data_versions"] == 1
    await set_to(web, max_data_ttl=5)
    await post(web, "remount", 1)
    assert await acting(web) == [1_800_000, 5, 1000]
    for body in ({"first_tablet_index": 3}, {"first_tablet_index": 2, "last_tablet_index": 1}):
        assert (await web.refusal("POST", f"{TABLE}/remount", body))[:2] == (404, "NO_TABLET")


async def test_the_limit_of_weight_is_each_tablets(web: Web) -> None:
    await create(web, tablet_count=2)
    await set_to(web, max_ordered_tablet_data_weight=20)
    await post(web, "remount", 1)
    for _ in range(3):  # rows weigh 9 each
        for index in range(2):
            await insert(web, {"id": 1, "$tablet_index": index})
    assert (await web.node.produce(NAME, b'{"id":1}', partition=0)).error_code == ErrorCode.NONE
    refused = await web.refusal("POST", f"{TABLE}/rows", {"rows": [{"id": 1, "$tablet_index": 1}]})
    assert "max_ordered_tablet_data_weight=20" in refused[2]
    await reopened(web)
    assert (await web.node.produce(NAME, b'{"id":1}', partition=1)).error_code == ErrorCode.POLICY_VIOLATION
    assert (await web.node.produce(NAME, b'{"id":1}', partition=0)).error_code == ErrorCode.NONE
    await set_to(web, max_ordered_tablet_data_weight=None)
    await post(web, "remount", 1)
    await insert(web, {"id": 1, "$tablet_index": 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_data_versions", 0),
        ("max_data_versions", 0),
        ("min_data_ttl", 7),
        ("max_data_ttl", 7),
        ("max_ordered_tablet_data_weight", 7),
    ],
)
async def test_each_attribute_is_taken_by_tablet(web: Web, name: str, value: int) -> None:
    before = (await create(web, tablet_count=2))["mounted_attributes"][name]
    await set_to(web, **{name: value})
    assert await acting(web, name) == [before, before]
    await post(web, "unmount", 1)
    await post(web, "mount", 1, freeze=True)
    assert await acting(web, name) == [before, value]


async def test_an_ordering_that_was_set_is_taken_by_tablet(web: Web) -> None:
    await create(web, tablet_count=2, mount=False)
    await set_to(web, commit_ordering="strong")
    await post(web, "mount", 1)
    assert await acting(web, "commit_ordering") == ["weak", "strong"]
    refused = await web.refusal("PATCH", TABLE, {"attributes": {"commit_ordering": "weak"}})
    assert refused[:2] == (409, "WRONG_STATE")


@pytest.mark.parametrize("verbs", [("freeze", "unfreeze"), ("unmount",), ("freeze",), ("mount",)])
async def test_only_a_mount_of_a_tablet_that_was_unmounted_takes_attributes(web: Web, verbs: Sequence[str]) -> None:
    await create(web)
    await set_to(web, max_data_ttl=5)
    for verb in verbs:
        await post(web, verb)
    assert await acting(web) == [1_800_000]


async def test_retention_ms_acts_at_once_in_all_tablets(web: Web) -> None:
    await filled(web)
    await set_to(web, **SOON, max_ordered_tablet_data_weight=10**9)
    await post(web, "remount", 0)
    assert await retention(web) == "-1", "the longest age of a tablet is shown"
    for text in ("-1", "1500"):  # the first one is shown already
        assert (await web.ask("PATCH", CONFIGS, {"configs": {"retention.ms": text}}))[0] == 200
        assert await retention(web) == text
        kept = 1 if text == "-1" else 0
        assert await acting(web, "min_data_versions") == [kept] * 3
    assert await acting(web) == [1500] * 3
    assert await acting(web, "max_ordered_tablet_data_weight") == [10**9, None, None]
    _, table = await web.ask("GET", TABLE)
    assert table["attributes"]["max_data_ttl"] == 1500
    await reopened(web)
    assert await aged(web) == [2, 2, 2]


async def test_another_config_leaves_each_tablet_its_age(web: Web) -> None:
    await filled(web)
    await set_to(web, **SOON)
    await post(web, "remount", 2)
    assert (await web.ask("PATCH", CONFIGS, {"configs": {"pq.low.watermark.bytes": 4096}}))[0] == 200
    assert await acting(web, "min_data_versions") == [1, 1, 0]
    assert await aged(web) == [0, 0, 2]


async def test_a_config_that_is_partly_wrong_keeps_the_rows_of_all_tablets(web: Web) -> None:
    await filled(web)
    await set_to(web, **SOON)
    await post(web, "remount", 0)

    def of_another_version(record: TopicRecord) -> TopicRecord:
        return replace(record, config={**record.config, "flush.ms": "x"})

    await opened(web).topics.change(NAME, of_another_version)
    assert await aged(web) == [0, 0, 0]
    await opened(web).topics.change(NAME, lambda record: replace(record, config={**record.config, "flush.ms": "9"}))
    assert await aged(web) == [2, 0, 0]


async def test_the_longest_age_of_a_tablet_is_the_topics_retention_ms(web: Web) -> None:
    await create(web, tablet_count=2, attributes=SOON)
    assert await retention(web) == "1000"
    await set_to(web, max_data_ttl=500)
    await post(web, "remount", 0)
    assert await retention(web) == "1000"
    await set_to(web, max_data_ttl=2000)
    await post(web, "remount", 0)
    assert await retention(web) == "2000"
    await post(web, "unmount")
    await post(web, "reshard", 0, 1, tablet_count=1)
    assert await retention(web) == "2000"


async def test_tablets_of_a_reshard_take_what_is_set_at_their_mount(web: Web) -> None:
    await filled(web)
    await set_to(web, max_data_ttl=5)
    await post(web, "remount", 2)
    await post(web, "unmount")
    await post(web, "reshard", 0, tablet_count=2)
    await set_to(web, max_data_ttl=6)
    await post(web, "mount", 1)
    assert await acting(web) == [1_800_000, 6, 1_800_000, 5], "those behind it keep theirs under other numbers"
    await post(web, "mount", 2)
    assert await acting(web) == [1_800_000, 6, 6, 5]
    await reopened(web)
    assert await acting(web) == [1_800_000, 6, 6, 5]


async def test_glued_tablets_take_what_is_set_at_their_mount(web: Web) -> None:
    await filled(web)
    await set_to(web, max_data_ttl=5)
    await post(web, "remount", 1, 2)
    await set_to(web, **SOON)
    await post(web, "unmount")
    await post(web, "reshard", 0, 1, tablet_count=1)
    assert await tablets(web, "total_row_count") == [4, 2]
    assert await acting(web) == [1_800_000, 5], "it is not mounted yet"
    await post(web, "mount", 0)
    assert await acting(web) == [1000, 5]
    assert await aged(web) == [4, 0]


async def test_kafka_grows_a_table_by_tablets_that_take_what_is_set(web: Web) -> None:
    await create(web)
    await set_to(web, **SOON)
    assert (await web.ask("POST", f"/v1/topics/{NAME}/partitions", {"count": 3}))[0] == 200
    assert await acting(web) == [1_800_000, 1000, 1000]
    await insert(web, *({"id": index, "$tablet_index": index} for index in range(3)))
    for verb in ("freeze", "unfreeze"):
        await post(web, verb)
    assert await aged(web) == [0, 1, 1]
    assert await retention(web) == "-1"


async def test_a_static_table_has_the_first_tablets_and_takes_what_is_set_when_it_is_mounted_again(web: Web) -> None:
    await filled(web)
    await set_to(web, max_data_ttl=5)
    await post(web, "remount", 1)
    await post(web, "unmount")
    table = await post(web, "alter", dynamic=False)
    assert table["mounted_attributes"]["max_data_ttl"] == 1_800_000
    await post(web, "alter", dynamic=True)
    assert await acting(web) == [1_800_000]
    await post(web, "mount")
    assert await acting(web) == [5]


async def test_a_tablet_keeps_its_attributes_in_another_cell(web: Web) -> None:
    assert (await web.ask("POST", "/v1/cells", {"bundle": "default"}))[0] == 201
    await filled(web)
    await set_to(web, **SOON)
    await post(web, "remount", 1)
    await set_to(web, max_data_ttl=10**9)
    for cell in ("1", "0", "1"):
        await post(web, "mount", 0, 2, cell_id=cell)
        assert await acting(web) == [1_800_000, 1000, 1_800_000]
    assert await aged(web) == [0, 2, 0]


async def test_a_table_has_a_limit_of_sets_of_attributes(serve: Any) -> None:
    web = await serve(table_attribute_sets_max=2)
    await create(web, tablet_count=3)
    await set_to(web, max_data_ttl=5)
    await post(web, "remount", 0)
    refused = await web.refusal("PATCH", TABLE, {"attributes": {"max_data_ttl": 6}})
    assert refused[:2] == (409, "TOO_MANY_ATTRIBUTE_SETS")
    assert refused[2] == "2 sets of attributes act in tablets of the table, and the limit is 2"
    await set_to(web, max_data_ttl=5)
    await post(web, "remount")
    await set_to(web, max_data_ttl=6)
    await post(web, "remount", 2)
    assert await acting(web) == [5, 5, 6]

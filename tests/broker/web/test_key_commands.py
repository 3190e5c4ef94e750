"""Commands of KV tablets over HTTP: every one of them, what is refused, and that topics stay whole."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.broker.web.conftest import Web
from tests.broker.web.test_tablets import SCHEME, tablet_of_new_topic


class Keys:
    """The commands of one tablet."""

    def __init__(self, web: Web, tablet: int) -> None:
        self.web = web
        self.path = f"/v1/tablets/{tablet}/commands"

    async def run(self, *commands: dict[str, Any], **body: Any) -> Any:
        status, document = await self.web.ask("POST", self.path, {"commands": list(commands), **body})
        assert status == 200, document
        return document["result"]

    async def refused(self, *commands: dict[str, Any], **body: Any) -> tuple[int, str, str]:
        return await self.web.refusal("POST", self.path, {"commands": list(commands), **body})

    async def write(self, **values: str) -> None:
        await self.run(*({"write": {"key": key, "value": value}} for key, value in values.items()))

    async def all(self) -> dict[str, Any]:
        page = await self.run({"read_range": {"from": "u", "include_from": True, "to": "v", "include_data": True}})
        return {pair["key"]: pair["value"] for pair in page["pairs"]}


@pytest.fixture
async def keys(serve: Callable[..., Awaitable[Web]]) -> Keys:
    """Of a test broker."""
    web = await serve(test_door=True)
    return Keys(web, await tablet_of_new_topic(web))


@pytest.mark.spec("B.1")
async def test_what_is_written_is_read_whole_and_in_parts(keys: Keys) -> None:
    await keys.run({"write": {"key": "u\\x00", "value": {"base64": "AAH/"}, "created": 7}})
    await keys.write(ua="0123456789")
    assert await keys.run({"read": {"key": "ua"}}) == {"status": "ok", "value": "0123456789"}
    assert await keys.run({"read": {"key": "ua", "offset": 3, "size": 4}}) == {"status": "ok", "value": "3456"}
    assert await keys.run({"read": {"key": "ub"}}) == {"status": "nodata", "value": ""}
    page = await keys.run({"read_range": {"from": "u", "to": "ua"}})
    assert page == {
        "status": "ok",
        "pairs": [{"key": "u\\x00", "size_bytes": 3, "created": 7, "channel": 65535, "status": "ok", "value": None}],
    }
    assert await keys.all() == {"u\\x00": {"base64": "AAH/"}, "ua": "0123456789"}


@pytest.mark.spec("B.1", "J.2")
async def test_a_range_is_read_with_its_ends_as_told_and_in_pages(keys: Keys) -> None:
    await keys.write(ua="a", ub="b", uc="c")

    async def listed(**fields: Any) -> tuple[str, list[str]]:
        page = await keys.run({"read_range": fields})
        return page["status"], [pair["key"] for pair in page["pairs"]]

    assert await listed(**{"from": "ua", "to": "uc"}) == ("ok", ["ub"])
    ends = {"include_from": True, "include_to": True}
    assert await listed(**{"from": "ua", "to": "uc", **ends}) == ("ok", ["ua", "ub", "uc"])
    assert await listed(**{"from": "ua", "to": "uc", "limit_bytes": 1, **ends}) == ("overrun", ["ua"])
    assert await listed(**{"from": "v"}) == ("nodata", [])


@pytest.mark.spec("B.1", "J.2", "H12")
async def test_keys_are_deleted_renamed_copied_and_chained(keys: Keys) -> None:
    await keys.write(ua="a", ub="b", uc="c", ud="d")
    await keys.run({"delete_range": {"from": "ua", "to": "uc"}})
    assert list(await keys.all()) == ["ua", "uc", "ud"]
    await keys.run({"rename": {"old": "uc", "new": "ud"}})
    assert await keys.all() == {"ua": "a", "ud": "c"}
    copied = {"from": "u", "to": "v", "prefix_to_remove": "u", "prefix_to_add": "ux"}
    await keys.run({"copy_range": copied})
    assert await keys.all() == {"ua": "a", "ud": "c", "uxa": "a", "uxd": "c"}
    chained = {"inputs": ["ua", {"value": "-"}, "ud"], "output": "uz", "keep_inputs": True}
    await keys.run({"concat": chained})
    await keys.run({"patch": {"original": "uz", "patched": "uy", "diffs": [{"offset": 1, "value": "+"}]}})
    found = await keys.all()
    assert (found["uz"], found["uy"], found["ua"]) == ("a-c", "a+c", "a")


@pytest.mark.spec("B.1", "J.2")
async def test_commands_of_one_request_are_applied_together_or_not_at_all(keys: Keys) -> None:
    await keys.write(ua="a")
    written = {"write": {"key": "ub", "value": "b"}}
    refused = await keys.refused(written, {"rename": {"old": "uc", "new": "ud"}})
    assert refused[:2] == (404, "NO_SUCH_KEY")
    assert await keys.all() == {"ua": "a"}
    await keys.run(written, {"rename": {"old": "ua", "new": "uc"}})
    assert await keys.all() == {"ub": "b", "uc": "a"}


@pytest.mark.spec("B.1")
async def test_a_generation_locks_earlier_users_out(keys: Keys) -> None:
    assert await keys.run({"increment_generation": {}}) is None
    status, document = await keys.web.ask("POST", keys.path, {"commands": [{"get_status": {}}]})
    assert (status, document) == (200, {"generation": 1, "result": {"status": "green"}})
    written = {"write": {"key": "ua", "value": "a"}}
    assert (await keys.refused(written, generation=0))[:2] == (409, "GENERATION_MISMATCH")
    await keys.run(written, generation=1)
    assert await keys.all() == {"ua": "a"}
    assert (await keys.refused({"increment_generation": {}}, written))[0] == 400


async def test_a_topic_stays_whole_and_the_keys_are_there_after_a_restart(keys: Keys) -> None:
    await keys.web.node.produce("t", b"r" * 5000)
    await keys.write(ua="a")
    tablet = keys.path.split("/")[3]
    assert (await keys.web.ask("POST", f"/v1/tablets/{tablet}/restart", {}))[0] == 200
    assert await keys.all() == {"ua": "a"}
    _, records = await keys.web.ask("GET", "/v1/topics/t/records")
    assert len(records["records"][0]["value"]) == 5000


@pytest.mark.parametrize(
    "command",
    [
        {"write": {"key": "d1", "value": "x"}},
        {"write": {"key": "", "value": "x"}},
        {"delete_range": {"from": "a", "to": "v"}},
        {"delete_range": {"from": "u", "to": "w"}},
        {"delete_range": {"from": "u", "to": "v", "include_to": True}},
        {"rename": {"old": "i0000000000", "new": "u"}},
        {"rename": {"old": "u", "new": "i0000000000"}},
        {"copy_range": {"from": "d", "to": "v", "prefix_to_remove": "d", "prefix_to_add": "u"}},
        {"copy_range": {"from": "u", "to": "v", "prefix_to_remove": "u", "prefix_to_add": "d"}},
        {"concat": {"inputs": ["d"], "output": "u"}},
        {"concat": {"inputs": ["u"], "output": "d"}},
        {"patch": {"original": "i0000000000", "patched": "u", "diffs": []}},
        {"write": {"key": "u", "value": None}},
        {"write": {"key": "u", "value": "v" * 2000, "channel": 10}},
        {"read": {"key": "u"}, "get_status": {}},
        {},
    ],
)
async def test_what_is_the_topics_or_cannot_be_is_refused(keys: Keys, command: dict[str, Any]) -> None:
    before = await keys.run({"read_range": {}})
    assert (await keys.refused(command))[:2] == (400, "INVALID_REQUEST")
    assert await keys.run({"read_range": {}}) == before


async def test_a_request_that_reads_does_nothing_else(keys: Keys) -> None:
    refused = await keys.refused({"read": {"key": "u"}}, {"write": {"key": "u", "value": "v"}})
    assert refused[0] == 400
    assert await keys.all() == {}


async def test_a_broker_that_is_not_for_tests_only_reads(web: Web) -> None:
    keys = Keys(web, await tablet_of_new_topic(web))
    await web.node.produce("t", b"record")
    page = await keys.run({"read_range": {"from": "d"}})
    assert [pair["key"][:1] for pair in page["pairs"]][:1] == ["d"]
    assert (await keys.run({"read": {"key": page["pairs"][0]["key"]}}))["status"] == "ok"
    status, code, _ = await keys.refused({"write": {"key": "u", "value": "v"}})
    assert (status, code) == (403, "NO_TEST_BROKER")
    assert await keys.all() == {}


@pytest.mark.spec("B.1")
async def test_answers_and_requests_are_bounded(serve: Callable[..., Awaitable[Web]]) -> None:
    web = await serve(test_door=True, http_items_max=10, http_answer_bytes_max=1024)
    keys = Keys(web, await tablet_of_new_topic(web))
    for tens in range(3):
        await keys.run(*({"write": {"key": f"u{tens}{each}", "value": "v"}} for each in range(10)))
    page = await keys.run({"read_range": {"from": "u"}})
    assert page["status"] == "overrun"
    assert 10 < len(page["pairs"]) < 30
    await keys.write(ubig="b" * 5000)
    part = await keys.run({"read": {"key": "ubig"}})
    assert (part["status"], len(part["value"])) == ("overrun", 1024)
    many = [{"write": {"key": "u", "value": "v"}}] * 11
    assert (await keys.refused(*many))[:2] == (400, "INVALID_REQUEST")
    assert (await keys.refused())[0] == 400


async def test_a_tablet_without_keys_is_refused(web: Web) -> None:
    assert (await Keys(web, SCHEME).refused({"read": {"key": "u"}}))[:2] == (409, "NO_KEYS")
    assert (await Keys(web, 7).refused({"read": {"key": "u"}}))[:2] == (404, "UNKNOWN_TABLET")

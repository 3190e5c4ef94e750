"""A native write, at an offset, and native commits, in sessions (semantics A.5, A.14)."""

from typing import Any

import pytest

from pqbroker.protocol.errors import ErrorCode
from tests.broker.web.conftest import Web

RECORDS = "/v1/topics/t/partitions/0/records"
COMMITS = "/v1/groups/g/commits"


@pytest.fixture
async def web(web: Web) -> Web:
    """A node with a topic of ten records."""
    await web.node.create_topic("t")
    assert (await web.node.produce("t", *[b"r"] * 10)).error_code == 0
    return web


def session(generation: int, step: int = 0, name: str = "s") -> dict[str, Any]:
    return {"generation": generation, "step": step, "name": name}


async def commit(web: Web, offset: int, of: dict[str, Any], **fields: Any) -> tuple[int, bool]:
    body = {"topic": "t", "partition": 0, "offset": offset, "session": of, **fields}
    status, document = await web.ask("POST", COMMITS, body)
    assert status == 200, document
    return document["offset"], document["changed"]


async def refused(web: Web, offset: int, of: dict[str, Any], **fields: Any) -> tuple[int, str]:
    body = {"topic": "t", "partition": 0, "offset": offset, "session": of, **fields}
    return (await web.refusal("POST", COMMITS, body))[:2]


@pytest.mark.spec("A.2", "A.16", "A.5")
async def test_a_mirrored_batch_keeps_its_offsets_and_readers_step_over_the_gap(web: Web) -> None:
    asked = {"offset": 100, "records": [{"value": "a"}, {"key": "k", "value": "b"}]}
    assert await web.ask("POST", RECORDS, asked) == (201, {"offset": 100, "end_offset": 102})
    _, read = await web.ask("GET", "/v1/topics/t/records?offset=9")
    assert [(record["offset"], record["value"]) for record in read["records"]] == [(9, "r"), (100, "a"), (101, "b")]
    assert (await web.node.produce("t", b"next")).base_offset == 102
    assert (await web.refusal("POST", RECORDS, asked))[:2] == (400, "OFFSET_OUT_OF_RANGE")


@pytest.mark.spec("A.1")
async def test_the_first_offset_may_be_any_number(web: Web) -> None:
    await web.node.create_topic("u")
    asked = {"offset": 1_000_000, "records": [{"value": "a"}]}
    path = RECORDS.replace("/t/", "/u/")
    assert (await web.ask("POST", path, asked))[1] == {"offset": 1_000_000, "end_offset": 1_000_001}
    _, topic = await web.ask("GET", "/v1/topics/u")
    assert topic["partitions"][0]["start_offset"] == 1_000_000


@pytest.mark.spec("A.5")
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (RECORDS, {"offset": 10, "records": []}, 400),
        (RECORDS, {"offset": -1, "records": [{"value": "a"}]}, 400),
        (RECORDS, {"offset": (1 << 63) - 1, "records": [{"value": "a"}]}, 409),
        (RECORDS.replace("/0/", "/1/"), {"offset": 10, "records": [{"value": "a"}]}, 404),
    ],
)
async def test_a_mirrored_batch_that_cannot_be_is_refused(web: Web, path: str, body: Any, status: int) -> None:
    assert (await web.refusal("POST", path, body))[0] == status
    assert (await web.node.produce("t", b"next")).base_offset == 10


@pytest.mark.spec("A.14")
async def test_a_commit_moves_forwards_only_and_says_whether_it_did(web: Web) -> None:
    assert await commit(web, 5, session(1)) == (5, True)
    assert await commit(web, 3, session(1, 1)) == (5, False)
    assert await commit(web, 7, session(1, 1), metadata="m") == (7, True)
    _, group = await web.ask("GET", "/v1/groups/g")
    assert [(one["offset"], one["metadata"]) for one in group["partitions"]] == [(7, "m")]


@pytest.mark.spec("A.14")
async def test_a_session_that_was_replaced_commits_nothing(web: Web) -> None:
    assert await commit(web, 5, session(2, name="new")) == (5, True)
    assert await refused(web, 6, session(1, name="old")) == (409, "ILLEGAL_GENERATION")
    assert await commit(web, 6, session(2, 1, name="new")) == (6, True)


@pytest.mark.spec("A.14")
async def test_a_strict_commit_outside_the_partition_is_refused_and_another_clipped(web: Web) -> None:
    assert await refused(web, 11, session(1), strict=True) == (400, "OFFSET_OUT_OF_RANGE")
    assert await commit(web, 9, session(1), strict=True) == (9, True)
    assert await commit(web, 99, session(1)) == (10, True)


@pytest.mark.spec("A.14")
async def test_a_re_created_consumer_reads_from_zero_and_ends_earlier_sessions(web: Web) -> None:
    assert await commit(web, 5, session(3)) == (5, True)
    status, made = await web.ask("POST", "/v1/groups/g/recreate", {"topic": "t", "partition": 0})
    assert (status, made["offset"], made["session"]["generation"]) == (200, 0, 4)
    assert await refused(web, 6, session(3, 9)) == (409, "ILLEGAL_GENERATION")
    assert await commit(web, 2, session(4)) == (2, True)


async def test_a_refused_store_and_wrong_names_are_told(web: Web) -> None:
    web.node.engine.faults.refuse_next()
    assert await refused(web, 5, session(1)) == (503, ErrorCode.COORDINATOR_NOT_AVAILABLE.name)
    assert await commit(web, 5, session(1)) == (5, True)
    assert await refused(web, 6, session(1, 1), metadata="m" * 5000) == (400, "OFFSET_METADATA_TOO_LARGE")
    assert await refused(web, 6, session(1, 1, "s" * 300)) == (400, "INVALID_REQUEST")
    assert await refused(web, 6, session(1, 1, "\udc80")) == (400, "INVALID_REQUEST")
    assert await refused(web, 6, session(1, 1), metadata="\udc80") == (400, "INVALID_REQUEST")

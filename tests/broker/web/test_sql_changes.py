"""Topics that cannot be read, or are others by the time their rows are read: SQL says so, and answers with no rows."""

from typing import Any

import pytest

from pqbroker.broker.services.sql.query import Query
from pqbroker.storage.unreadable import StoredUnreadable
from tests.broker.web.conftest import Web

QUERY = {"query": "SELECT count(*) AS n FROM t"}


async def test_a_partition_that_is_unreadable_is_named_and_not_empty(web: Web) -> None:
    await web.node.create_topic("t", partitions=2)
    topic = web.node.server.node.cell.current.topics.get("t")
    assert topic is not None
    topic.partitions[1].refuse(StoredUnreadable("a row", "it is damaged"))
    _, code, message = await web.refusal("POST", "/v1/sql", QUERY)
    assert code == "CORRUPT_MESSAGE"
    assert "a row cannot be read: it is damaged" in message


async def test_a_topic_that_is_created_again_while_it_is_read_is_another_one(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    await web.node.create_topic("t")
    await web.node.produce("t", b"first", b"second")
    hand_over = Query._hand_over

    async def created_again(query: Query, *arguments: Any) -> None:
        await web.node.server.node.cell.current.topics.delete("t")
        await web.node.create_topic("t")
        await web.node.produce("t", b"other", b"others")
        await hand_over(query, *arguments)

    monkeypatch.setattr(Query, "_hand_over", created_again)
    _, code, _ = await web.refusal("POST", "/v1/sql", QUERY)
    assert code == "UNKNOWN_TOPIC_OR_PARTITION"

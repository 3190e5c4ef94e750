"""Queues through either client: consumers, pulls, advances, sessions of producers."""

from typing import Any

import pytest

from pqbroker.client import AutoTrim, ClientError, Column
from pqbroker.testing import Broker
from tests.http_client.conftest import done

pytestmark = pytest.mark.spec("E.13")

SCHEMA = (Column("id", "int64", is_required=True), Column("content", "string"))


async def queue_of(client: Any, name: str, **options: Any) -> Any:
    await done(client.table(name).create(SCHEMA, **options))
    return client.queue(name)


async def test_rows_are_pushed_once_and_pulled_to_the_end(client: Any, name: str) -> None:
    queue = await queue_of(client, f"//{name}")
    assert queue.name == name
    described = await done(queue.register("billing", vital=True))
    assert described.consumers == {"billing": True}
    session = await done(queue.take_session("loader", "host-1", user_meta=[1]))
    assert (session.epoch, session.sequence_number, session.user_meta) == (0, -1, [1])
    rows = [{"id": 1, "content": b"\xff"}, {"id": 2, "content": b"b"}]
    assert (await done(queue.push(session, rows, sequence_number=0))).skipped_row_count == 0
    again = await done(queue.push(session, [*rows, {"id": 3}], sequence_number=0))
    assert (again.skipped_row_count, again.last_sequence_number) == (2, 2)
    pulled = await done(queue.pull(consumer="billing", max_row_count=2))
    assert [row["content"] for row in pulled.rows] == [b"\xff", b"b"]
    await done(queue.advance("billing", pulled.next_offset, old_offset=pulled.offset))
    assert [row["id"] for row in (await done(queue.pull(consumer="billing"))).rows] == [3]
    (place,) = await done(queue.places("billing"))
    assert (place.offset, place.disposition, place.unread_row_count) == (2, "pending_consumption", 1)
    assert [one.sequence_number for one in await done(queue.sessions())] == [2]
    assert name in [one.name for one in await done(client.queues("billing"))]
    await done(queue.unregister("billing"))
    assert name not in [one.name for one in await done(client.queues())]


async def test_a_fenced_owner_and_a_reader_that_lost_learn_why(client: Any, name: str) -> None:
    queue = await queue_of(client, name)
    first = await done(queue.take_session("loader", "s"))
    second = await done(queue.take_session("loader", "s"))
    with pytest.raises(ClientError) as fenced:
        await done(queue.push(first, [{"id": 1}], sequence_number=0))
    assert (fenced.value.code, fenced.value.number) == ("ZOMBIE_EPOCH", 3102)
    await done(queue.push(second, [{"id": 1, "$sequence_number": 7}]))
    await done(queue.advance("g", 1))
    with pytest.raises(ClientError) as conflict:
        await done(queue.advance("g", 1, old_offset=0))
    assert (conflict.value.code, conflict.value.number) == ("CONSUMER_OFFSET_CONFLICT", 3100)
    await done(queue.end_session("loader", "s"))
    assert await done(queue.sessions()) == []


async def test_auto_trim_is_set_and_read_back(client: Any, name: str) -> None:
    queue = await queue_of(client, name)
    trim = AutoTrim(enable=True, retained_rows=5, retained_lifetime_duration=3000)
    assert (await done(queue.set_auto_trim(trim))).auto_trim == trim
    assert (await done(queue.describe())).auto_trim == trim


async def test_a_topic_without_a_schema_is_pulled_raw(running: Broker, client: Any, name: str) -> None:
    running.produce(running.create_topic(name), "v", key="k")
    (row,) = (await done(client.queue(name).pull())).rows
    assert (row["key"], row["value"]) == (b"k", b"v")

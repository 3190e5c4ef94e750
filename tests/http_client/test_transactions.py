"""Transactions through either client: reads of one moment, writes at the end of the block, lost answers, conflicts."""

import asyncio
import json
from typing import Any

import pytest

from pqbroker.client import AsyncClient, Client, ClientError, Column
from pqbroker.http_client import transaction_calls
from pqbroker.testing import Broker
from tests.http_client.conftest import done
from tests.http_client.test_connections import answer, scripted

SCHEMA = (Column("id", "int64", sort_order="ascending"), Column("amount", "int64"), Column("content", "string"))
STARTED = (answer({"transaction": "11" * 16, "start_timestamp": 7}, status="201 Created"), False)
COMMITTED = (answer({"timestamp": 9, "row_count": 1, "duplicate": True}), False)
COMMIT = b"POST /v1/transactions/" + b"11" * 16 + b"/commit"
ABORT = b"POST /v1/transactions/" + b"11" * 16 + b"/abort"


def refusal(status: int, code: str, **more: Any) -> tuple[bytes, bool]:
    error = {"code": code, "message": "no", "cure": "Wait.", **more}
    return answer({"error": error}, status=f"{status} No"), False


class Block:
    """The block of a transaction of either client."""

    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction
        self._is_async = hasattr(transaction, "__aenter__")

    async def __aenter__(self) -> Any:
        return await self._transaction.__aenter__() if self._is_async else self._transaction.__enter__()

    async def __aexit__(self, *raised: object) -> None:
        if self._is_async:
            await self._transaction.__aexit__(*raised)
        else:
            self._transaction.__exit__(*raised)


@pytest.fixture(params=[Client, AsyncClient])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_a_transaction_reads_one_moment_and_writes_at_its_end(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA))
    await done(table.insert([{"id": 1, "amount": 10, "content": b"\xff"}, {"id": 2, "amount": 20}, {"id": 3}]))
    async with Block(client.transaction(timeout_ms=10_000)) as tx:
        await done(table.insert([{"id": 4, "amount": 5}]))
        keys = [{"id": 1}, {"id": 4}]
        assert await done(tx.lookup(name, keys)) == [{"id": 1, "amount": 10, "content": b"\xff"}, None]
        assert await done(tx.lookup(f"//{name.replace('.', '/')}", keys, columns=["amount"])) == [{"amount": 10}, None]
        assert await done(tx.lookup_prefix(name, {"id": 4})) == []
        assert await done(tx.sql(f'SELECT sum(amount) AS n FROM "{name}"').rows()) == [{"n": 30}]
        await done(tx.ping())
        tx.insert(name, [{"id": 5, "amount": 1}])
        tx.insert(name, iter([{"id": 6, "content": b"\xfe"}]))
        tx.update(name, [{"id": 1, "amount": 11}])
        tx.delete(f"//{name.replace('.', '/')}", [{"id": 3}])
        assert await done(tx.lookup(name, [{"id": 5}])) == [None]
        early = tx.timestamp
    assert early is None
    assert tx.timestamp > tx.start_timestamp
    found = await done(table.lookup([{"id": number} for number in (1, 2, 3, 5, 6)], timestamp=tx.timestamp))
    assert found == [
        {"id": 1, "amount": 11, "content": b"\xff"}, {"id": 2, "amount": 20, "content": None}, None,
        {"id": 5, "amount": 1, "content": None}, {"id": 6, "amount": None, "content": b"\xfe"},
    ]  # fmt: skip
    assert (await done(table.lookup([{"id": 5}], timestamp=tx.timestamp - 1))) == [None]


async def test_an_exception_aborts_and_nothing_is_written(client: Any, running: Broker, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA))
    tx = client.transaction()

    async def fail() -> None:
        async with Block(tx):
            tx.insert(name, [{"id": 1}])
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert await done(table.lookup([{"id": 1}])) == [None]
    with pytest.raises(ClientError) as ended:
        await done(tx.ping())
    assert (ended.value.code, ended.value.status) == ("TRANSACTION_ENDED", 409)


async def test_an_aborted_transaction_writes_nothing_and_takes_nothing_more(client: Any, name: str) -> None:
    async with Block(client.transaction()) as tx:
        tx.insert(name, [{"id": 1}])
        await done(tx.abort())
        with pytest.raises(ValueError, match="the transaction is over"):
            tx.insert(name, [{"id": 2}])
    assert tx.timestamp is None
    with pytest.raises(ValueError, match="has not begun"):
        client.transaction().insert(name, [{"id": 1}])


async def test_a_reading_transaction_is_committed_too(client: Any) -> None:
    async with Block(client.transaction()) as tx:
        pass
    assert tx.timestamp is not None


async def test_values_that_rows_do_not_have_are_refused_when_they_are_given(client: Any, name: str) -> None:
    import pyarrow

    async with Block(client.transaction()) as tx:
        with pytest.raises(TypeError, match="object is no type that rows have"):
            tx.insert(name, [{"id": object()}])
        with pytest.raises(TypeError, match="rows as mappings"):
            tx.insert(name, pyarrow.table({"id": [1]}))


async def test_a_conflict_has_code_and_number_and_writes_nothing(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA))

    async def write_late() -> None:
        async with Block(client.transaction()) as tx:
            await done(table.insert([{"id": 1, "amount": 1}]))
            tx.insert(name, [{"id": 1, "amount": 2}, {"id": 2}])

    with pytest.raises(ClientError) as conflict:
        await write_late()
    error = conflict.value
    assert (error.code, error.status, error.number) == ("ROW_LOCK_CONFLICT", 409, 1700)
    found = await done(table.lookup([{"id": 1}, {"id": 2}], columns=["amount"]))
    assert found == [{"amount": 1}, None]


async def test_a_transaction_that_meets_conflicts_begins_again(client: Any, name: str) -> None:
    table = client.table(name)
    await done(table.create(SCHEMA))
    await done(table.insert([{"id": 1, "amount": 0}]))
    calls: list[int] = []

    async def add_async(tx: Any) -> int:
        calls.append(tx.start_timestamp)
        (found,) = await tx.lookup(name, [{"id": 1}])
        if len(calls) < 3:
            await table.insert([{"id": 1, "amount": 10 * len(calls)}])
        tx.update(name, [{"id": 1, "amount": found["amount"] + 1}])
        return len(calls)

    def add(tx: Any) -> int:
        calls.append(tx.start_timestamp)
        (found,) = tx.lookup(name, [{"id": 1}])
        if len(calls) < 3:
            table.insert([{"id": 1, "amount": 10 * len(calls)}])
        tx.update(name, [{"id": 1, "amount": found["amount"] + 1}])
        return len(calls)

    assert await done(client.run_transaction(add_async if isinstance(client, AsyncClient) else add)) == 3
    assert calls == sorted(set(calls))
    assert await done(table.lookup([{"id": 1}], columns=["amount"])) == [{"amount": 21}]


async def test_a_commit_without_an_answer_is_sent_again_until_there_is_one(kind: Any) -> None:
    answers = (
        STARTED, (None, False), refusal(503, "COMMIT_UNKNOWN"), refusal(503, "NOT_LEADER_OR_FOLLOWER"), COMMITTED,
    )  # fmt: skip
    with scripted(*answers) as server:
        client = kind(server.address)
        async with Block(client.transaction()) as tx:
            tx.delete("t", [{"id": 1}])
        await done(client.close())
    assert tx.timestamp == 9
    assert server.requests == [b"POST /v1/transactions"] + [COMMIT] * 4


async def test_a_commit_is_not_sent_again_after_an_answer_that_is_definite(kind: Any) -> None:
    for given in (
        [refusal(409, "ROW_LOCK_CONFLICT", number=1700)], [refusal(503, "COMMIT_TOO_SLOW")],
        [(None, False), refusal(404, "NO_TRANSACTION")],
    ):  # fmt: skip
        with scripted(STARTED, *given) as server:
            client = kind(server.address)
            with pytest.raises(ClientError) as refused:
                async with Block(client.transaction()):
                    assert await asyncio.to_thread(server.closed.wait, 10), "else the commit is sent on what is closing"
            await done(client.close())
        assert refused.value.code in json.dumps(str(given))
        assert server.requests[1:] == [COMMIT] * len(given)


async def test_a_commit_whose_body_is_refused_is_aborted(kind: Any) -> None:
    with scripted(STARTED, refusal(413, "BODY_TOO_LARGE"), refusal(503, "TOO_MUCH_AT_ONCE")) as server:
        client = kind(server.address)
        with pytest.raises(ClientError) as refused:
            async with Block(client.transaction()):
                pass
        await done(client.close())
    assert refused.value.code == "BODY_TOO_LARGE"
    assert server.requests[1:] == [COMMIT, ABORT]


async def test_an_outcome_stays_unknown_after_a_time_and_may_be_asked_for(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_calls, "COMMIT_S_MAX", 0.0)
    with scripted(STARTED, (None, False), (None, False), COMMITTED) as server:
        client = kind(server.address)
        with pytest.raises(ClientError) as lost:
            async with Block(client.transaction()) as tx:
                pass
        assert lost.value.code == "CONNECTION_LOST"
        await done(tx.commit())
        await done(client.close())
    assert tx.timestamp == 9
    assert server.requests[1:] == [COMMIT] * 3


async def test_a_transaction_begins_again_after_conflicts_alone_and_so_often(kind: Any) -> None:
    conflict = refusal(409, "ROW_LOCK_CONFLICT", number=1700)
    calls: list[str] = []

    async def note_async(tx: Any) -> None:
        calls.append(tx.name)

    def note(tx: Any) -> None:
        calls.append(tx.name)

    other = [STARTED, refusal(400, "INVALID_ROW"), conflict]
    for answers, code in (([STARTED, conflict] * 3, "ROW_LOCK_CONFLICT"), (other, "INVALID_ROW")):
        with scripted(*answers) as server:
            client = kind(server.address)
            with pytest.raises(ClientError) as refused:
                await done(client.run_transaction(note_async if kind is AsyncClient else note, attempts=3))
            await done(client.close())
        assert refused.value.code == code
    assert len(calls) == 4
    with pytest.raises(ValueError, match="attempts is 0"):
        await done(kind("127.0.0.1:1").run_transaction(note, attempts=0))

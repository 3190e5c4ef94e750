"""Changes of a table or topic in which a transaction has prepared rows, or a decision that others need: they wait for a
while, then are refused with its name."""

import asyncio
from typing import Any

import pytest

from pqbroker.broker.services.cells.tablet_gluing import Glue
from pqbroker.pq.serving import transacted_batches
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.bundles.bundle import BundleRefused
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.scheme_state import Resharded, TopicRecord
from tests.broker.web.conftest import Web
from tests.broker.web.test_tables import NAME, create, insert, select
from tests.pq.serving.transacting import TIMEOUT_S, decision, head, part, prepare, transaction, turns_pass

LATER = 1 << 62


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transacted_batches, "WAIT_S", 0.01)


def table(web: Web) -> Topic:
    topic = web.node.server.node.cell.current.topics.get(NAME, or_static=True)
    assert topic is not None
    return topic


def partition_of(web: Web, index: int = 0) -> PartitionServer:
    return table(web).partitions[index]


async def prepared(web: Web, index: int = 0) -> None:
    """A table of two unmounted tablets with rows, one with a transaction's rows that came before the unmount."""
    await create(web, tablet_count=2)
    for number in range(2):
        await insert(web, {"$tablet_index": number, "id": number})
    await prepare(part(partition_of(web, index), web.node.server.node.clock, b"a", prepared=head()))
    assert (await web.ask("POST", f"/v1/tables/{NAME}/unmount", {"force": True}))[0] == 200


CHANGES = [
    ("POST", f"/v1/tables/{NAME}/reshard", {"tablet_count": 1}),
    ("POST", f"/v1/tables/{NAME}/reshard", {"tablet_count": 3}),
    ("POST", f"/v1/tables/{NAME}/alter", {"dynamic": False}),
    ("DELETE", f"/v1/tables/{NAME}", None),
    ("DELETE", f"/v1/topics/{NAME}", None),
]


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
async def test_a_change_is_refused_while_rows_are_prepared(
    web: Web, method: str, path: str, body: Any, index: int
) -> None:
    await prepared(web, index)
    _, code, text = await web.refusal(method, path, body)
    assert code in ("WRONG_STATE", "REQUEST_TIMED_OUT")
    assert f"partition {index}: rows of transaction {transaction(1).hex()} are prepared here" in text
    await partition_of(web, index).transactions.finish(transaction(1), LATER)
    assert (await web.ask(method, path, body))[0] in (200, 204)


async def test_a_change_waits_until_the_rows_are_finished(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    await prepared(web)
    monkeypatch.setattr(transacted_batches, "WAIT_S", TIMEOUT_S)
    change = asyncio.ensure_future(web.ask("POST", f"/v1/tables/{NAME}/reshard", {"tablet_count": 1}))
    await turns_pass()
    await partition_of(web).transactions.finish(transaction(1), LATER)
    assert (await asyncio.wait_for(change, TIMEOUT_S))[0] == 200
    assert (partition_of(web).start_offset, partition_of(web).end_offset) == (0, 3)


async def test_a_decision_is_kept_while_others_need_it_and_no_longer(web: Web) -> None:
    await create(web, tablet_count=1)
    known = partition_of(web).transactions
    decided = decision(1, LATER, [head().home])
    await known.kv.execute([known.decision_command(decided)])
    known.take_decision(decided)
    _, code, text = await web.refusal("DELETE", f"/v1/topics/{NAME}")
    assert code == "REQUEST_TIMED_OUT"
    assert "is committed, and 1 of its tablets have not written their rows" in text
    known.take_decision(decided.finished)
    assert (await web.ask("DELETE", f"/v1/topics/{NAME}"))[0] == 204


@pytest.mark.parametrize("has_rows", [False, True])
async def test_outcomes_of_a_tablet_that_goes_are_kept_for_commits_sent_again(web: Web, has_rows: bool) -> None:
    await create(web, tablet_count=2)
    for number in range(2 if has_rows else 0):
        await insert(web, {"$tablet_index": number, "id": number})
    outcomes = []
    for number in range(2):
        known = partition_of(web, number).transactions
        outcomes.append(decision(number, LATER + number))
        await known.kv.execute([known.decision_command(outcomes[number])])
        known.take_decision(outcomes[number])
    assert (await web.ask("POST", f"/v1/tables/{NAME}/unmount", {}))[0] == 200
    assert (await web.ask("POST", f"/v1/tables/{NAME}/reshard", {"tablet_count": 1}))[0] == 200
    assert list(partition_of(web).transactions.decisions.values()) == outcomes
    await web.node.server.node.cell.current.host.restart(table(web).record.tablets[0])
    assert list(partition_of(web).transactions.decisions.values()) == outcomes


async def test_tablets_with_prepared_rows_are_not_glued(web: Web) -> None:
    await prepared(web, 1)
    with pytest.raises(BundleRefused, match="rows of transaction"):
        await web.node.server.node.cell.current.others.glue(table(web), Glue(0, [1]), not_called)


def not_called(record: TopicRecord, tablet_id: TabletId) -> Resharded:
    raise AssertionError(f"{record} has got {tablet_id}")


async def test_rows_that_appear_while_a_table_is_changed_refuse_the_change(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change looks for transactions once more, in its own turn of the loop."""
    await prepared(web)

    async def waited(partitions: object) -> None: ...

    for module in ("conversion.wait_for_transactions", "resharding.wait_for_transactions"):
        monkeypatch.setattr(f"pqbroker.broker.services.tables.{module}", waited)
    for verb, body in (("reshard", {"tablet_count": 3}), ("alter", {"dynamic": False})):
        _, code, text = await web.refusal("POST", f"/v1/tables/{NAME}/{verb}", body)
        assert (code, "rows of transaction" in text) == ("WRONG_STATE", True)


async def test_a_batch_of_a_session_waits_for_prepared_rows_which_may_be_its_own(web: Web) -> None:
    await create(web, tablet_count=1)
    await prepare(part(partition_of(web), web.node.server.node.clock, b"a", prepared=head()))
    body = {"rows": [{"id": 1}], "session": "s", "sequence": 1}
    inserting = asyncio.ensure_future(web.ask("POST", f"/v1/tables/{NAME}/rows", body))
    await turns_pass()
    assert not inserting.done()
    await partition_of(web).transactions.finish(transaction(1), None)
    status, answer = await asyncio.wait_for(inserting, TIMEOUT_S)
    assert (status, answer["duplicate"]) == (200, False)


async def test_an_insert_into_a_partition_in_doubt_is_sent_again(web: Web) -> None:
    await create(web, tablet_count=1)
    await web.node.server.node.cell.current.commits.stop()  # it would drop rows whose home is nowhere
    await prepare(part(partition_of(web), web.node.server.node.clock, b"a", prepared=head()))
    tablet_id = table(web).record.tablets[0]
    await web.node.server.node.cell.current.host.restart(tablet_id)
    body = {"rows": [{"id": 1}]}
    status, code, _ = await web.refusal("POST", f"/v1/tables/{NAME}/rows", body)
    assert (status, code) == (503, "NOT_LEADER_OR_FOLLOWER")
    await partition_of(web).transactions.finish(transaction(1), None)
    assert (await web.ask("POST", f"/v1/tables/{NAME}/rows", body))[0] == 200
    assert [row["id"] for row in await select(web, tablet_index=0)] == [1]

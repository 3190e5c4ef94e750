"""Transactions that are not over at another node: what it tells of them, and lies."""

import json
from typing import Any

import pytest

from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.services.commits.elsewhere import (
    WantedParts,
    await_elsewhere,
    parts_elsewhere,
    under_way_elsewhere,
)
from pqbroker.broker.services.commits.in_doubt import UnfinishedKind, UnfinishedPart
from pqbroker.broker.web.peer_calls import PeerCalls
from pqbroker.pq.serving import transacted_batches
from pqbroker.pq.transactions.stored_forms import ParticipantId, TransactionId
from pqbroker.storage.ids import TabletId
from tests.broker.services.commits.doubt import leave_in_doubt, log_of, right_of
from tests.broker.web.conftest import Web, serve, web  # noqa: F401 (fixtures)
from tests.broker.web.test_peer_queries import Linked


def linked(web: Web, *answers: Any) -> Linked:  # noqa: F811
    """Return the node as another one, reached over a link; `answers` stand in for its own."""
    return Linked(PeerCalls(web.node.server.node), *answers)


async def test_what_is_unfinished_there_is_told_as_it_is(web: Web) -> None:  # noqa: F811
    name = await leave_in_doubt(web, is_stored=True)
    known = list(web.node.server.node.cell.current.commits.unfinished())
    assert {part.participant for part in known} == {right_of(web).participant_id, log_of(web).participant_id}
    found = await parts_elsewhere(linked(web), [2, 3], WantedParts())
    assert found == sorted([*known, *known], key=lambda part: part.position)
    home = known[0].home.tablet_id

    async def told(wanted: WantedParts) -> list[UnfinishedPart]:
        return await parts_elsewhere(linked(web), [2], wanted)

    assert await told(WantedParts(1)) == known[:1]
    assert await told(WantedParts(after=known[0].position)) == known[1:]
    assert await told(WantedParts(transaction=TransactionId(bytes.fromhex(name)))) == known
    assert await told(WantedParts(transaction=TransactionId(bytes(16)))) == []
    assert await told(WantedParts(homes=frozenset({home}))) == known
    assert await told(WantedParts(homes=frozenset({TabletId(home + 1)}))) == []
    commits = web.node.server.node.cell.current.commits
    assert commits.not_open([home, known[0].participant.tablet_id]) == {home}


def test_decisions_wait_for_nothing_that_another_one_decides() -> None:
    participant, home = ParticipantId(TabletId(1)), ParticipantId(TabletId(5))
    number = TransactionId(bytes(16))
    part = UnfinishedPart(participant, UnfinishedKind.DECIDED, number, home, 0, "", True, 1, None, 1)
    assert WantedParts(homes=frozenset({TabletId(5)})).among([part]) == []
    prepared = part._replace(kind=UnfinishedKind.PREPARED)
    assert WantedParts(homes=frozenset({TabletId(5)})).among([part, prepared]) == [prepared]


async def test_a_topic_with_rows_in_doubt_there_is_named_and_awaited(
    web: Web, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    monkeypatch.setattr(transacted_batches, "WAIT_S", 0.01)
    name = await leave_in_doubt(web, is_stored=True)
    topics = web.node.server.node.cell.current.topics
    assert (await web.ask("POST", "/v1/topics", {"name": "idle"}))[0] == 201
    busy, idle = (topics.get(each) for each in ("log", "idle"))
    assert busy is not None
    assert idle is not None
    ids = [busy.record.topic_id, idle.record.topic_id, bytes(16)]
    assert await under_way_elsewhere(linked(web), 2, ids) == {busy.record.topic_id}
    assert name in await await_elsewhere(linked(web), 2, busy.record.topic_id)
    for topic_id in ids[1:]:
        assert await await_elsewhere(linked(web), 2, topic_id) == ""


@pytest.mark.parametrize("answer", [({}, b""), ({"told": 5}, b""), ({"told": [5]}, b""), ({"told": [["x"]]}, b"")])
async def test_a_node_that_lies_is_named(web: Web, answer: Any) -> None:  # noqa: F811
    for asking in (
        parts_elsewhere(linked(web, answer), [2], WantedParts()), under_way_elsewhere(linked(web, answer), 2, []),
    ):  # fmt: skip
        with pytest.raises(NodeSilent, match="node 2"):
            await asking


@pytest.mark.parametrize(
    "asked",
    [
        {"commits": "dance"}, {"commits": 5}, {"commits": "unfinished"}, {"commits": "unfinished", "asked": [1]},
        *(
            {"commits": "unfinished", "asked": asked}
            for asked in ([1, [1], None, None], [1, 5, None, None], [1, None, "x", None], [1, None, None, 5])
        ),
        {"commits": "under_way", "asked": 5}, {"commits": "under_way", "asked": ["x"]},
        {"commits": "await", "asked": None}, {"commits": "await", "asked": "x"},
    ],
)  # fmt: skip
async def test_what_is_no_question_is_refused(web: Web, asked: Any) -> None:  # noqa: F811
    with pytest.raises(ValueError):  # noqa: PT011
        await PeerCalls(web.node.server.node).answer(json.loads(json.dumps(asked)), b"")

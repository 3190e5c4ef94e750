"""Reads of sorted tablets by a query at another node: what they see, whose rights hold, what they hold until when."""

from dataclasses import replace
from typing import Any

import pytest

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.services.sql.wanted_inputs import WantedInputs
from pqbroker.broker.web.peer_calls import PeerCalls
from pqbroker.storage.ids import TabletId
from pqbroker.tables.work.refusal import QueryRefused
from tests.broker.web.conftest import Web
from tests.broker.web.test_peer_calls import AnnAlone
from tests.broker.web.test_peer_queries import away
from tests.broker.web.test_sorted_background import flush, tablet_of
from tests.broker.web.test_sorted_reads import TABLE, sorted_reads, table
from tests.broker.web.test_sorted_tables import PATH, create, insert, row

FREE = 1 << 63


def wanted(web: Web, timestamp: int) -> WantedInputs:
    record = table(web).record
    return WantedInputs(TABLE, record.table_id.hex(), record.tablets[0], timestamp, [("", None)])


async def test_reads_at_another_node_see_what_those_here_see(web: Web) -> None:
    await create(web)
    await insert(web, row("a", 1, count=1))
    await flush(web)
    at = await insert(web, row("a", 2, count=2))
    reads = sorted_reads(web, at)
    await reads.snapshot(TABLE)
    mine = await reads.inputs({"table": TABLE, "tablet": 0, "ranges": [["", None]]})
    theirs = await away(web.node, PeerCalls(web.node.server.node)).inputs(wanted(web, at))
    assert len(mine.documents) == 2
    assert [{**document, "pieces": [*document["pieces"]]} for document in mine.documents] == theirs.documents
    assert (b"".join(mine.payload), mine.chunks) == (b"".join(theirs.payload), theirs.chunks)
    reads.close()


@pytest.mark.parametrize("begins", ["held", "located"])
@pytest.mark.parametrize("ends", ["query", "link"])
async def test_a_timestamp_is_held_there_until_the_query_ends(web: Web, begins: str, ends: str) -> None:
    await create(web)
    at = await insert(web, row("a", 1))
    calls, held = PeerCalls(web.node.server.node), tablet_of(web).share.reads
    reads = away(web.node, calls)
    for _ in range(2):
        await (reads.hold(at) if begins == "held" else reads.inputs(wanted(web, at)))
        assert held.bound(FREE) == at
    reads.close() if ends == "query" else calls.close()
    assert held.bound(FREE) == FREE


async def test_rights_of_the_caller_hold_there(web: Web) -> None:
    await create(web)
    at = await insert(web, row("a", 1))
    guarded = PeerCalls(replace(web.node.server.node, access=AnnAlone()))
    assert (await away(web.node, guarded, principal=Principal("User", "ann")).inputs(wanted(web, at))).documents
    with pytest.raises(QueryRefused) as refused:
        await away(web.node, guarded, principal=Principal("User", "bob")).inputs(wanted(web, at))
    assert refused.value.code == "TOPIC_AUTHORIZATION_FAILED"


async def test_what_is_refused_there_is_refused_here(web: Web) -> None:
    await create(web)
    at = await insert(web, row("a", 1))
    asked, calls = wanted(web, at), PeerCalls(web.node.server.node)
    for other in (asked._replace(table_id="00" * 16), asked._replace(tablet_id=TabletId(1))):
        with pytest.raises(QueryRefused) as refused:
            await away(web.node, calls).inputs(other)
        assert refused.value.code == "TABLE_CHANGED"
    await web.ask("POST", f"{PATH}/unmount", {})
    with pytest.raises(QueryRefused) as refused:
        await away(web.node, calls).inputs(asked)
    assert refused.value.code == "WRONG_STATE"


async def test_a_table_with_other_tablets_is_refused(web: Web) -> None:
    await create(web, pivot_keys=[[], ["m"]])
    reads = sorted_reads(web, None)
    await reads.snapshot(TABLE)
    await web.ask("POST", f"{PATH}/unmount", {})
    assert (await web.ask("POST", f"{PATH}/reshard", {"pivot_keys": [[], ["c"]]}))[0] == 200
    await web.ask("POST", f"{PATH}/mount", {})
    with pytest.raises(QueryRefused) as refused:
        await reads.inputs({"table": TABLE, "tablet": 1, "ranges": [["", None]]})
    assert refused.value.code == "TABLE_CHANGED"
    reads.close()


@pytest.mark.parametrize(
    "answer",
    [
        ({}, b""), ({"inputs": 5, "chunks": 1}, b""), ({"inputs": [], "chunks": "1"}, b""),
        NodeSilent("node 2 says nothing"),
    ],
)  # fmt: skip
async def test_a_node_that_is_away_or_lies_is_named(web: Web, answer: Any) -> None:
    await create(web)
    with pytest.raises(QueryRefused, match="node 2") as refused:
        await away(web.node, PeerCalls(web.node.server.node), answer).inputs(wanted(web, 1))
    assert refused.value.code == "NODE_SILENT"


QUESTION = {"query": 1, "caller": ["User", "ann", "127.0.0.1", ""], "isolation": 1}
LOCATE: Any = ["t", "", 1, 1, [["", None]]]


@pytest.mark.parametrize(
    "asked",
    [
        {"hold": -1}, {"hold": "1"}, {"hold": 1 << 64}, {"locate": None}, {"locate": LOCATE[:4]},
        {"locate": [1, *LOCATE[1:]]}, {"locate": ["t", None, *LOCATE[2:]]}, {"locate": ["t", "", "1", 1, [["", None]]]},
        {"locate": [*LOCATE[:4], []]}, {"locate": [*LOCATE[:4], [[""]]]}, {"locate": [*LOCATE[:4], [["x", None]]]},
        {"locate": [*LOCATE[:4], 5]}, {"locate": [*LOCATE[:3], -1, [["", None]]]},
    ],
)  # fmt: skip
async def test_what_is_no_question_is_refused(web: Web, asked: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|in place of|hex"):
        await PeerCalls(web.node.server.node).answer({**QUESTION, **asked}, b"")

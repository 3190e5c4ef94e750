"""Reads of a query at another node: what they see, whose rights hold, what they hold and until when."""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from pqbroker.broker.ground.access import ANONYMOUS, Principal
from pqbroker.broker.ground.looks import Looks
from pqbroker.broker.ground.other_nodes import NodeSilent, NodeState
from pqbroker.broker.services.sql.topic_reads import AWAY_BYTES, TopicReads, WantedStretches
from pqbroker.broker.web.peer_calls import PeerCalls
from pqbroker.broker.web.resources.away_reads import AwayReads
from pqbroker.broker.web.resources.sql import CallersTargets
from pqbroker.broker.web.routing.routes import Call
from pqbroker.pq.reading.query import READ_COMMITTED, READ_UNCOMMITTED, Isolation
from pqbroker.pq.serving.stretches import EARLIEST_MS
from pqbroker.pq.serving.topic import Topic
from pqbroker.protocol.records import Record, encode_batch
from pqbroker.storage.copy_steps import CellElsewhere
from pqbroker.storage.ids import CellId
from pqbroker.tables.work.refusal import QueryRefused
from tests.broker.conftest import Node, produce_request
from tests.broker.web.conftest import Web
from tests.broker.web.test_peer_calls import AnnAlone


class Linked:
    """A node as the first one reaches it; `answers` stand in for its own."""

    def __init__(self, calls: PeerCalls, *answers: Any) -> None:
        self._calls = calls
        self._answers = [*answers]

    async def samples(self) -> Mapping[int, Any]:
        return {}

    async def restart_all(self) -> Mapping[str, Any]:
        raise NodeSilent("nothing is restarted there")

    async def restart_state(self) -> Mapping[str, Any]:
        raise NodeSilent("nothing is restarted there")

    def states(self) -> Mapping[int, NodeState]:
        return {}

    def away(self) -> Mapping[int, str]:
        return {}

    def cell_elsewhere(self, cell: CellId) -> CellElsewhere:
        raise NodeSilent("nothing is copied there")

    def commits_paused(self) -> AbstractAsyncContextManager[None]:
        raise NodeSilent("nothing is held back there")

    async def work_on_tablets(self, node: int, asked: Any) -> Any:
        raise NodeSilent("nothing is asked of it")

    async def ask_sessions(self, node: int, asked: Any, body: bytes) -> tuple[Any, bytes]:
        raise NodeSilent("nothing is asked of it")

    async def ask_web(self, node: int, asked: Any, body: bytes) -> tuple[Any, bytes]:
        if self._answers:
            answer: tuple[Any, bytes] | Exception = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        head, payload = await self._calls.answer(json.loads(json.dumps(asked)), body)
        return json.loads(json.dumps(head)), payload

    def tell_web(self, node: int, told: Any) -> None:
        self._calls.take(told)


def topic_of(node: Node, name: str = "t") -> Topic:
    found = node.server.node.cell.current.topics.get(name)
    assert found is not None
    return found


def part(node: Node, *partitions: int, name: str = "t") -> dict[str, tuple[Topic, list[int]]]:
    return {name: (topic_of(node, name), [*partitions])}


def wanted(node: Node, end_offset: int, partition: int = 0, offset: int = 0) -> WantedStretches:
    topic_id = topic_of(node).record.topic_id.hex()
    return WantedStretches("t", topic_id, partition, offset, end_offset, EARLIEST_MS, False, False, None, None)


def away(
    node: Node, calls: PeerCalls, *answers: Any, isolation: Isolation = READ_COMMITTED,
    principal: Principal = ANONYMOUS,
) -> AwayReads:  # fmt: skip
    linked = Linked(calls, *answers)
    call = Call(
        replace(node.server.node, others=lambda: linked), {}, {}, None, Looks(1).of(""), principal=principal,
        host="127.0.0.1",
    )  # fmt: skip
    return AwayReads(call, 2, isolation)


def here(node: Node, isolation: Isolation = READ_COMMITTED) -> TopicReads:
    call = Call(node.server.node, {}, {}, None, Looks(1).of(""))
    return TopicReads(CallersTargets(call).served_topic, isolation)


@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
async def test_reads_at_another_node_see_what_those_here_see(node: Node, isolation: Isolation) -> None:
    await node.create_topic("t", 2)
    await node.produce("t", b"a", b"b", partition=1)
    own, others = here(node, isolation), away(node, PeerCalls(node.server.node), isolation=isolation)
    (mine,), (theirs,) = (await own.begin(part(node, 0, 1))).values(), (await others.begin(part(node, 0, 1))).values()
    assert [seen[:4] for seen in theirs] == [seen[:4] for seen in mine] == [(0, 0, 0, False), (1, 0, 2, False)]
    await node.produce("t", b"later", partition=1)
    (document, payload), (same, bytes_there) = [
        await reads.stretches(wanted(node, 2, partition=1)) for reads in (own, others)
    ]
    assert (b"".join(payload), document) == (b"".join(bytes_there), same)
    assert document["stretches"][0]["next_offset"] == 2


async def test_a_revision_there_is_none_of_this_process(node: Node) -> None:
    await node.create_topic("t")
    (mine,) = (await here(node).begin(part(node, 0)))["t"]
    (theirs,) = (await away(node, PeerCalls(node.server.node)).begin(part(node, 0)))["t"]
    generation = topic_of(node).partitions[0].storage.generation
    assert theirs.revision == f"{generation}.{mine.revision}"


async def test_what_is_in_memory_there_comes_in_bounded_pieces(node: Node) -> None:
    await node.create_topic("t")
    for _ in range(4):
        await node.produce("t", b"x" * 900_000)
    _, payload = await here(node).stretches(wanted(node, 4))
    _, from_there = await away(node, PeerCalls(node.server.node)).stretches(wanted(node, 4))
    assert sum(map(len, payload)) > 3 * AWAY_BYTES
    assert sum(map(len, from_there)) < 2 * AWAY_BYTES


@pytest.mark.parametrize("ends", ["query", "link"])
async def test_ends_of_compacted_topics_are_held_until_the_query_ends(node: Node, ends: str) -> None:
    await node.create_topic("t", cleanup_policy="compact")
    (client, batch) = await node.connect(), encode_batch([Record(key=b"k", value=b"a")])
    await client.ask(produce_request("t", bytes(batch)), 9)
    calls = PeerCalls(node.server.node)
    reads, scans = away(node, calls), topic_of(node).partitions[0].scans
    await reads.begin(part(node, 0))
    assert scans.bound(9) == 1
    reads.close() if ends == "query" else calls.close()
    assert scans.bound(9) == 9


async def test_rights_of_the_caller_hold_there(node: Node) -> None:
    await node.create_topic("t")
    guarded = PeerCalls(replace(node.server.node, access=AnnAlone()))
    await away(node, guarded, principal=Principal("User", "ann")).begin(part(node, 0))
    bob = Principal("User", "bob")
    for asking in (
        away(node, guarded, principal=bob).begin(part(node, 0)),
        away(node, guarded, principal=bob).stretches(wanted(node, 1)),
    ):
        with pytest.raises(QueryRefused) as refused:
            await asking
        assert refused.value.code == "TOPIC_AUTHORIZATION_FAILED"


async def test_reads_are_limited(node: Node) -> None:
    await node.create_topic("t")
    calls = PeerCalls(node.server.node)
    reads = [away(node, calls) for _ in range(2 * node.server.node.settings.sql_queries_max)]
    for one in reads:
        await one.begin(part(node, 0))
    with pytest.raises(QueryRefused) as refused:
        await away(node, calls).begin(part(node, 0))
    assert refused.value.code == "TOO_MANY_QUERIES"
    reads[0].close()
    await away(node, calls).begin(part(node, 0))


async def test_another_topic_of_the_name_is_not_read(node: Node) -> None:
    await node.create_topic("t")
    reads, known = away(node, PeerCalls(node.server.node)), topic_of(node)
    another = Topic(replace(known.record, topic_id=bytes(16)), known.config, node.server.node.settings)
    for asked in (
        reads.begin({"t": (another, [0])}), reads.begin(part(node, 7)),
        reads.stretches(wanted(node, 1)._replace(topic_id="00" * 16)),
    ):  # fmt: skip
        with pytest.raises(QueryRefused) as refused:
            await asked
        assert refused.value.code == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_topics_of_a_transaction_that_does_not_end_are_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create_topic("t")
    await node.create_topic("u")
    moments = node.server.node.cell.current.commits.moments
    monkeypatch.setattr(moments, "_limit_s", 0.01)
    token = await moments.begin(["t"])
    both = {**part(node, 0), **part(node, 0, name="u")}
    with pytest.raises(QueryRefused) as refused:
        await away(node, PeerCalls(node.server.node)).begin(both)
    assert refused.value.code == "ROW_LOCKED"
    moments.end(token)
    assert {*await away(node, PeerCalls(node.server.node)).begin(both)} == {"t", "u"}


@pytest.mark.parametrize(
    "answer",
    [
        ({}, b""), ({"begun": {"t": [[0]]}}, b""), ({"begun": {"t": [[0, 0, 0, 0, 0]]}}, b""), ({"begun": 5}, b""),
        (NodeSilent("node 2 says nothing")), ({"stretches": 5}, b""),
    ],
)  # fmt: skip
async def test_a_node_that_is_away_or_lies_is_named(node: Node, answer: Any) -> None:
    await node.create_topic("t")
    calls = PeerCalls(node.server.node)
    for reading in (
        away(node, calls, answer).begin(part(node, 0)), away(node, calls, answer).stretches(wanted(node, 1)),
    ):  # fmt: skip
        with pytest.raises(QueryRefused, match="node 2") as refused:
            await reading
        assert refused.value.code == "NODE_SILENT"


async def test_a_part_of_a_topic_is_never_its_whole(
    serve: Callable[..., Awaitable[Web]], monkeypatch: pytest.MonkeyPatch
) -> None:
    web = await serve()
    await web.node.create_topic("t", 3)
    monkeypatch.setattr(CallersTargets, "parts_here", lambda *_: part(web.node, 0, 2))
    status, code, _ = await web.refusal("POST", "/v1/sql", {"query": "SELECT count(*) FROM t"})
    assert (status, code) == (503, "NOT_LEADER_OR_FOLLOWER")


@pytest.mark.parametrize("growths", [1, 99])
async def test_a_topic_that_grows_while_a_query_begins_is_read_whole_or_refused(
    serve: Callable[..., Awaitable[Web]], monkeypatch: pytest.MonkeyPatch, growths: int
) -> None:
    web = await serve()
    node = web.node
    await node.create_topic("t", 2)
    for partition in (0, 1):
        await node.produce("t", b"a", partition=partition)
    calls, asked = PeerCalls(node.server.node), list[int]()

    class GrowsMeanwhile(AwayReads):
        async def begin(self, parts: Any) -> Any:
            begun = await super().begin(parts)
            asked.append(len(topic_of(node).partitions))
            if len(asked) <= growths:
                count = len(topic_of(node).partitions) + 1
                assert (await web.ask("POST", "/v1/topics/t/partitions", {"count": count}))[0] == 200
                await node.produce("t", b"a", partition=count - 1)
            return begun

    def others(_: object, names: Any) -> Any:
        return {2: part(node, *range(1, len(topic_of(node).partitions)))} if names else {}

    def reads(targets: CallersTargets, number: int, isolation: Isolation) -> AwayReads:
        linked = Linked(calls)
        call = replace(targets._call, node=replace(node.server.node, others=lambda: linked))
        return GrowsMeanwhile(call, number, isolation)

    monkeypatch.setattr(CallersTargets, "parts_away", others)
    monkeypatch.setattr(CallersTargets, "parts_here", lambda *_: part(node, 0))
    monkeypatch.setattr(CallersTargets, "reads_at", reads)
    monkeypatch.setattr(CallersTargets, "node_of", lambda _, name, index: 2 if index else None)
    if growths == 1:
        assert (await web.ask("POST", "/v1/sql", {"query": "SELECT count(*) AS n FROM t"})) == (200, {"n": 3})
        assert asked == [2, 3]
    else:
        status, code, text = await web.refusal("POST", "/v1/sql", {"query": "SELECT count(*) AS n FROM t"})
        assert (status, code) == (409, "TABLE_CHANGED")
        assert "added to t" in text


CALLER = ["User", "ann", "127.0.0.1", ""]
QUESTION = {"query": 1, "caller": CALLER, "isolation": 1}


@pytest.mark.parametrize(
    "asked",
    [
        QUESTION, {**QUESTION, "begin": {}}, {**QUESTION, "begin": []}, {**QUESTION, "begin": {"t": 5}},
        {**QUESTION, "begin": {"t": ["", ["0"]]}}, {**QUESTION, "begin": {"t": [0, [0]]}},
        {**QUESTION, "isolation": 2, "begin": {"t": ["", [0]]}}, {**QUESTION, "query": "1"},
        {**QUESTION, "caller": CALLER[:3]}, {**QUESTION, "wanted": None}, {**QUESTION, "wanted": [1] * 10},
        {**QUESTION, "wanted": ["t", "", -1, 0, 0, 0, False, False, None, None]},
        {**QUESTION, "wanted": ["t", "", 0, 0, 0, 0, False, False, [1], None]},
        {**QUESTION, "wanted": ["t", "", 0, 0, 0, 0, False, False, 5, None]},
        {**QUESTION, "wanted": ["t", "", 0, 0, 0, 0, False, False, None, "1"]},
    ],
)  # fmt: skip
async def test_what_is_no_question_is_refused(node: Node, asked: Any) -> None:
    with pytest.raises(ValueError, match=r"expected|in place of"):
        await PeerCalls(node.server.node).answer(asked, b"")

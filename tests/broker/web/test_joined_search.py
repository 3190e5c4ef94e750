"""A search over several nodes, joined: its limits hold for all, and where it ends another one continues."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pqbroker.broker.web.resources.joined_search import JoinedLimits, join_searches
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call, Stream, StreamCut
from pqbroker.broker.web.served import ROUTES

ROUTE = next(route for route in ROUTES if route.path == "/v1/topics/{name}/search")
PLENTY = JoinedLimits(1000, 1 << 30, 1 << 30, 1 << 30)
Lines = Sequence[Any]
LATER: Lines = ["other nodes are faster"]


def state(offsets: int, following: dict[str, int], **counts: int) -> dict[str, Any]:
    zeros = dict.fromkeys(("matches", "records", "bytes", "bytes_total", "decompressed_bytes", "unread"), 0)
    return {**zeros, "offsets": offsets, "offsets_total": 10, "next_offsets": following, **counts}


def match(partition: int, offset: int) -> dict[str, Any]:
    return {"match": {"partition": partition, "offset": offset}}


def begin(*partitions: int) -> dict[str, Any]:
    return {"progress": state(0, {str(index): 0 for index in partitions})}


END = {"end": {"reason": "end", **state(10, {})}}


class Nodes:
    """Nodes by number, each with the pieces that its search sends; an error among them is raised."""

    def __init__(self, *nodes: Sequence[Lines | Exception]) -> None:
        self._nodes = dict(enumerate(nodes, 1))
        self.closed: list[int] = []

    async def joined(self, limits: JoinedLimits = PLENTY) -> list[Any]:
        """Return the lines of the answer."""
        calls = {
            number: cast(Call, SimpleNamespace(node=SimpleNamespace(leaders=SimpleNamespace(number=number))))
            for number in self._nodes
        }
        pieces = [piece async for piece in join_searches(ROUTE, calls, self._serve, limits)]
        return [json.loads(line) for line in b"".join(pieces).splitlines()]

    async def _serve(self, call: Call) -> Stream:
        return Stream("", self._pieces(call.node.leaders.number), has_end=True)

    async def _pieces(self, number: int) -> AsyncGenerator[bytes, None]:
        try:
            for piece in self._nodes[number]:
                if isinstance(piece, Exception):
                    raise piece
                if piece is LATER:
                    for _ in range(100):
                        await asyncio.sleep(0)
                    continue
                yield b"".join(json.dumps(line).encode() + b"\n" for line in piece)
        finally:
            self.closed.append(number)


async def test_lines_of_all_nodes_are_joined() -> None:
    nodes = Nodes([[begin(0)], [match(0, 1), {"unread": {"partition": 0}}], [END]], [[begin(1)], [match(1, 5)], [END]])
    lines = await nodes.joined()
    assert lines[0]["progress"] == {**state(0, {"0": 0, "1": 0}), "offsets_total": 20}
    assert [line for line in lines if "match" in line or "unread" in line] == [
        match(0, 1), {"unread": {"partition": 0}}, match(1, 5)
    ]  # fmt: skip
    assert lines[-1]["end"] == {"reason": "end", **state(20, {}, matches=2), "offsets_total": 20}
    assert sorted(nodes.closed) == [1, 2]


async def test_at_the_limit_of_matches_each_node_is_continued_behind_its_last_one() -> None:
    nodes = Nodes(
        [[begin(0, 2, 4)], [match(0, 3)], [{"progress": state(5, {"2": 1, "4": 0})}, match(4, 7)], [match(4, 8)]],
        [[begin(1, 3)], [match(3, 2), match(3, 9)], [END]],
    )
    lines = await nodes.joined(PLENTY._replace(matches=4))
    assert [line["match"] for line in lines if "match" in line] == [
        match(0, 3)["match"], *(match(3, one)["match"] for one in (2, 9)), match(4, 7)["match"]
    ]  # fmt: skip
    assert lines[-1]["end"]["reason"] == "matches"
    assert lines[-1]["end"]["next_offsets"] == {"3": 10, "4": 8}


async def test_no_match_is_looked_at_before_all_nodes_have_begun() -> None:
    lines = await Nodes([[begin(0)], [match(0, 1)]], [LATER, [begin(1)]]).joined(PLENTY._replace(matches=1))
    assert lines[-1]["end"]["next_offsets"] == {"0": 2, "1": 0}


@pytest.mark.parametrize("reason", ["bytes", "decompressed_bytes"])
async def test_bytes_of_all_nodes_together_have_a_limit(reason: str) -> None:
    looked = {"progress": state(5, {"0": 5}, **{reason: 60})}
    looked_there = {"progress": state(4, {"1": 4}, **{reason: 40})}
    lines = await Nodes([[begin(0)], [looked], [END]], [[begin(1)], [looked_there], [END]]).joined(
        PLENTY._replace(**{reason: 100})
    )
    assert lines[-1]["end"]["reason"] == reason
    assert lines[-1]["end"]["next_offsets"] == {"0": 5, "1": 4}


async def test_the_bytes_of_the_answer_have_a_limit_and_a_match_beyond_it_is_found_again() -> None:
    most = len(json.dumps(match(0, 1))) + 2
    lines = await Nodes([[begin(0)], [match(0, 1)]], [[begin(1)], [match(1, 2)]]).joined(
        PLENTY._replace(answer_bytes=most)
    )
    assert [line for line in lines if "match" in line] == [match(0, 1)]
    assert lines[-1]["end"]["reason"] == "answer_bytes"
    assert lines[-1]["end"]["next_offsets"] == {"0": 2, "1": 0}


async def test_a_limit_of_one_node_ends_the_search() -> None:
    over = {"end": {"reason": "time", **state(5, {"0": 5})}}
    lines = await Nodes([[begin(0)], [over]], [[begin(1)], [END]]).joined()
    assert (lines[-1]["end"]["reason"], lines[-1]["end"]["next_offsets"]) == ("time", {"0": 5, "1": 0})


async def test_records_that_are_not_decoded_are_counted_of_all_nodes() -> None:
    first = {"records": 2, "partition": 0}
    lines = await Nodes(
        [[begin(0)], [{"end": {**END["end"], "undecoded": first}}]],
        [[begin(1)], [{"end": {**END["end"], "undecoded": {"records": 3, "partition": 1}}}]],
    ).joined()
    assert lines[-1]["end"]["undecoded"] == {"records": 5, "partition": 0}


AWAY = Problem(503, "NODE_SILENT", "node 2 is away", "Ask again.")


async def test_a_node_that_is_away_is_never_left_out() -> None:
    with pytest.raises(Problem) as refused:
        await Nodes([[begin(0)], [match(0, 1)], [END]], [AWAY]).joined()
    assert refused.value is AWAY
    for end in (AWAY, StreamCut(), None):
        pieces: list[Any] = [[begin(1)]] if end is None else [[begin(1)], end]
        lines = await Nodes([[begin(0)], [match(0, 1)], [END]], pieces).joined()
        assert lines[-1]["error"]["code"] == "NODE_SILENT"
        assert "node 2" in lines[-1]["error"]["message"]
        assert not any("end" in line for line in lines)


async def test_an_error_of_one_node_ends_the_search() -> None:
    refusal = {"error": {"code": "SEARCH_TOO_LONG"}}
    lines = await Nodes([[begin(0)], [refusal], [END]], [[begin(1)], [END]]).joined()
    assert lines[-1] == refusal


@pytest.mark.parametrize("lie", [{"progress": {}}, {"match": {}}, [], {"a": 1, "b": 2}, 7])
async def test_a_line_that_no_search_sends_is_refused(lie: Any) -> None:
    lines = await Nodes([[begin(0)], [lie]], [[begin(1)], [END]]).joined()
    assert lines[-1]["error"]["code"] == "NODE_SILENT"

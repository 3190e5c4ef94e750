"""Events of a broker with several nodes: states that other nodes tell, and what is no news."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from pqbroker.broker.ground.looks import Looks
from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.services.leaders import Leaders
from pqbroker.broker.web.peer_calls import PeerCalls
from pqbroker.broker.web.resources import events
from pqbroker.broker.web.resources.events_elsewhere import StatesElsewhere, shown_states
from pqbroker.broker.web.routing.routes import Call, Stream
from tests.broker.web.conftest import Web
from tests.broker.web.test_peer_queries import Linked

WAIT_S = 20.0


def call_of(web: Web, *answers: Any) -> Call:
    """Return a call at the first of two nodes; the other one answers as this broker does, or with these answers."""
    node = web.node.server.node
    linked = Linked(PeerCalls(node), *answers)
    first = replace(node, others=lambda: linked, leaders=Leaders(1, (1, 2)))
    return Call(first, {}, {}, None, Looks(1).of(""), host="127.0.0.1")


def answer(**told: Any) -> tuple[Any, bytes]:
    return {}, json.dumps(told).encode()


async def test_a_node_tells_what_it_runs_once(web: Web) -> None:
    await web.node.create_topic("t", 1)
    call, elsewhere = call_of(web), StatesElsewhere(events.FOLLOW_NODE)
    told = (await elsewhere.look(call, WAIT_S))[2]
    assert {*told.states} == {*events.OF_EACH_NODE}
    assert told.states["tablets"]
    assert await elsewhere.look(call, WAIT_S) == {}
    await web.node.create_topic("u", 1)
    assert (await elsewhere.look(call, WAIT_S))[2].states["tablets"] != told.states["tablets"]
    await elsewhere.close()


async def test_states_of_the_same_digest_are_not_sent_again() -> None:
    states: Any = {"tablets": {"1": (1, False)}}
    whole = await shown_states(states, [], "")
    assert whole["states"] == states
    assert await shown_states(states, [], whole["digest"]) == {"digest": whole["digest"]}
    assert "states" in await shown_states(states, [{"task": 1}], whole["digest"])


async def test_a_node_that_is_silent_or_lies_is_asked_again(web: Web) -> None:
    states = {"tablets": {"7": [1, False]}}
    call = call_of(
        web, NodeSilent("node 2 says nothing"), answer(states=5, tasks=[], digest="a"), answer(states={}),
        answer(states=states, tasks=[], digest="b"),
    )  # fmt: skip
    elsewhere = StatesElsewhere(events.FOLLOW_NODE)
    for _ in range(3):
        assert await elsewhere.look(call, WAIT_S) == {}
    assert (await elsewhere.look(call, WAIT_S))[2].states == states


async def test_a_node_that_takes_its_time_holds_nobody_up(web: Web) -> None:
    call, asked = call_of(web), asyncio.Event()
    others = call.node.others()
    assert others is not None

    async def never(*_: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    others.ask_web = never  # type: ignore[method-assign,assignment]
    elsewhere = StatesElsewhere(events.FOLLOW_NODE)
    assert await elsewhere.look(call, 0.01) == {}
    assert asked.is_set()
    await elsewhere.close()


async def test_the_first_word_of_a_node_is_no_news_and_the_next_ones_are(web: Web, monkeypatch: Any) -> None:
    monkeypatch.setattr(events, "EVENT_PERIOD_S", 0.01)
    task = {"task": 1, "ended_ms": None}
    states = [{"tablets": {"7": [1, False]}}, {"tablets": {"7": [2, False], "8": [1, False]}}]
    call = call_of(
        web, answer(states=states[0], tasks=[task], digest="a"), answer(digest="a"),
        answer(states=states[1], tasks=[{**task, "ended_ms": 5}], digest="b"),
    )  # fmt: skip
    stream = await events.follow(call)
    assert isinstance(stream, Stream)
    found = [event for event in await _events(stream.pieces, 2) if event.get("node") == 2 and "figures" not in event]
    assert [event["event"] for event in found] == ["table_tasks", "tablets"]
    assert found[0]["tasks"] == [{**task, "ended_ms": 5}]
    assert (found[1]["created"], found[1]["changed"], found[1]["deleted"]) == (["8"], ["7"], [])


async def _events(pieces: AsyncGenerator[bytes, None], count: int) -> list[Any]:
    """Return events until `count` of them are of another node."""
    found, seen = list[Any](), 0
    async with asyncio.timeout(WAIT_S):
        async for piece in pieces:
            found.append(json.loads(piece))
            seen += found[-1].get("node") == 2
            if seen == count:
                break
    await pieces.aclose()
    return found

"""Words of other nodes at the first one: tablets that they run, and lies about them."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pqbroker.broker.ground.metrics import Sample
from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.node import first_place, running_tablets
from pqbroker.broker.node.commit_ways import CommitWays
from pqbroker.broker.node.first_place import FirstPlace
from pqbroker.broker.node.node_place import NodePlace
from pqbroker.broker.node.sample_forms import decode_samples, encode_samples
from pqbroker.broker.peers.link_rules import LinkTerms
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerLink, PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call, encode_peer_call
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.serving.offsets import GroupOffsets
from pqbroker.storage.counters import Histogram
from pqbroker.storage.engine import EngineError
from pqbroker.storage.ids import CellId, TabletId
from pqbroker.storage.memory import MemoryEngine

TURNS = 20
"""Turns of the loop after which everything waits that has nothing to do."""
PLACE = NodePlace(1, 2, (), MemoryEngine(1 << 20), "/tmp/none", LinkTerms(b"secret"), CommitWays(is_first=True))


class End:
    """A link, as far as the first node's side looks at it."""

    is_open = True

    def __init__(self, node: int) -> None:
        self.node = node


def _linked(first: FirstPlace, node: int = 2) -> PeerLink:
    """Return a new link of a node."""
    link = cast(PeerLink, End(node))
    first.opened(link)
    return link


def _first(place: NodePlace) -> FirstPlace:
    others = SimpleNamespace(node_of=lambda cell: 2 - cell % 2, between=SimpleNamespace())
    opened = SimpleNamespace(others=others, topics=SimpleNamespace(offsets=GroupOffsets(lambda *_: None), names=tuple))
    node = SimpleNamespace(
        settings=BrokerSettings(), cell=SimpleNamespace(current=opened), loop=asyncio.get_running_loop()
    )
    return FirstPlace(place, cast(Any, node), cast(Any, None))


def _told(place: NodePlace, tablets: Any, node: int = 2) -> FirstPlace:
    first = _first(place)
    first.noted(_linked(first, node), encode_peer_call(PeerMethod.CONFIRM, tablets))
    return first


async def test_tablets_of_a_node_are_known_until_it_names_others_or_its_link_closes() -> None:
    place = replace(PLACE, elsewhere={})
    first = _told(place, {"2": {"70": 3, "71": 1}, "4": {}})
    assert place.elsewhere == {2: {70: 3, 71: 1}, 4: {}}
    end = _linked(first)
    first.noted(end, encode_peer_call(PeerMethod.CONFIRM, {"2": {"70": 4}}))
    assert place.elsewhere == {2: {70: 4}}
    for link in list(first._ends):
        first.closed(link, "the test ends")
    assert place.elsewhere == {}


async def test_what_comes_late_on_an_earlier_link_of_a_node_does_not_count() -> None:
    place = replace(PLACE, elsewhere={})
    first = _first(place)
    earlier, later = _linked(first), _linked(first)
    first.noted(later, encode_peer_call(PeerMethod.CONFIRM, {"2": {"70": 4}}))
    first.noted(earlier, encode_peer_call(PeerMethod.CONFIRM, {}))
    first.closed(earlier, "the test ends")
    assert place.elsewhere == {2: {70: 4}}


@pytest.mark.parametrize(
    "tablets", [None, 5, [], {"2": 5}, {"x": {}}, {"2": {"70": "y"}}, {"-2": {}}, {"4": {"70": None}}, {"4": [70]}]
)
async def test_lies_about_tablets_break_the_link(tablets: Any) -> None:
    place = replace(PLACE, elsewhere={})
    with pytest.raises(LinkBroken):
        _told(place, tablets)
    assert place.elsewhere == {}


async def test_cells_that_are_at_other_nodes_now_do_not_count() -> None:
    place = replace(PLACE, elsewhere={CellId(3): {TabletId(5): 1}})
    _told(place, {"1": {"70": 3}, "3": {}, "4": {}})
    assert place.elsewhere == {3: {5: 1}, 4: {}}


async def test_samples_of_a_node_that_is_not_linked_are_missed() -> None:
    with pytest.raises(NodeSilent, match="node 2 is not linked"):
        await _first(PLACE).samples()


def test_samples_reach_another_node_as_they_were_taken() -> None:
    histogram = Histogram()
    histogram.observe(0.2)
    taken = [Sample("errors", 5, ("NONE",)), Sample("request_seconds", labels=("Fetch", "4"), histogram=histogram)]
    errors, requests = decode_samples(encode_samples(taken))
    assert errors == taken[0]
    assert requests.labels == ("Fetch", "4")
    assert requests.histogram is not None
    assert (requests.histogram.buckets, requests.histogram.total) == (histogram.buckets, 0.2)


@pytest.mark.parametrize(
    "told",
    [
        b"", b"5", b"[5]",
        b'[["unknown", 1, [], null]]', b'[["errors", 1, [], null]]', b'[["errors", "x", ["a"], null]]',
        b'[["errors", 1, ["a"], [[1], 2]]]', b'[["request_seconds", 0, ["a", "4"], null]]', b"[" * 5000,
        b'[["request_seconds", 0, ["a", "4"], [[1], 2]]]', b'[["errors", 1, null, null]]', b"\xff",
    ],
)  # fmt: skip
def test_samples_that_are_none_break_the_link(told: bytes) -> None:
    with pytest.raises(LinkBroken):
        decode_samples(told)


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\1", b"\xff\0\0\0\0", b"\3\xff\xff\xff\xff{}", b"\3\0\0\0\2{]", b"\3\0\0\x13\x88" + b"[" * 5000,
        b"\7\0\0\0\1\xff",
    ],
)
def test_a_payload_that_is_none_breaks_the_link(payload: bytes) -> None:
    with pytest.raises(LinkBroken):
        decode_peer_call(payload)


def test_a_payload_is_read_as_it_was_written() -> None:
    payload = encode_peer_call(PeerMethod.KAFKA, {"host": "é"}, b"\0frame")
    method, head, body = decode_peer_call(payload)
    assert (method, head, bytes(body)) == (PeerMethod.KAFKA, {"host": "é"}, b"\0frame")


@pytest.mark.parametrize("error", [EngineError("no room"), asyncio.CancelledError()])
async def test_a_node_whose_cells_could_not_leave_it_counts_as_serving_again(error: BaseException) -> None:
    place = replace(PLACE, elsewhere={}, present={1, 2})
    first = _first(place)
    first._told[cast(PeerLink, End(2))], first._since[2] = {}, 1.0
    asked: list[int] = []

    async def empty(node: int) -> None:
        asked.append(node)
        assert place.present == {1}
        raise error

    cast(Any, first._node.cell.current.others.between).empty = empty
    with pytest.raises(PeerRefused if isinstance(error, EngineError) else asyncio.CancelledError):
        await first.empty(2)
    assert (asked, place.present, first._since) == ([2], {1, 2}, {2: 1.0})


async def test_others_run_the_cells_of_a_node_at_once_when_its_link_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_place, "PLACING_QUIET_S", 1000.0)
    first = _first(replace(PLACE, elsewhere={}, present={1, 2}, changed=asyncio.Event()))
    taken: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def take_over(node: int) -> None:
        taken.set_result(node)

    async def give_back(nodes: set[int]) -> bool:
        return False

    between = cast(Any, first._node.cell.current.others.between)
    between.take_over, between.give_back = take_over, give_back
    link = _linked(first)
    placing = asyncio.ensure_future(first.keep_placing())
    await asyncio.sleep(0)
    first.closed(link, "the node was killed")
    async with asyncio.timeout(20):
        assert await taken == 2
    placing.cancel()


async def test_all_cells_come_back_to_a_node_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_place, "PLACING_QUIET_S", 1000.0)
    first = _first(replace(PLACE, elsewhere={}, present={1, 2}, changed=asyncio.Event()))
    away = [1, 2, 3]
    have_come = asyncio.Event()

    async def give_back(nodes: set[int]) -> bool:
        assert nodes == {2}
        if away:
            away.pop()
            return True
        have_come.set()
        return False

    cast(Any, first._node.cell.current.others.between).give_back = give_back
    first._since[2] = -1000.0
    first._left.set()
    placing = asyncio.ensure_future(first.keep_placing())
    async with asyncio.timeout(20):
        await have_come.wait()
    placing.cancel()


async def test_other_nodes_are_told_at_once_which_tablets_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_place, "RUNNING_LOOK_S", 0.0)
    monkeypatch.setattr(running_tablets, "_QUIET_S", 1000.0)
    place = replace(PLACE, elsewhere={}, changed=asyncio.Event())
    first = _first(place)
    cast(Any, first._node.cell.current).cells = SimpleNamespace(hosts=list)
    third, told = End(3), asyncio.Event()
    cast(Any, third).note = lambda _: told.set()
    first._told[cast(PeerLink, third)] = {}
    telling = asyncio.ensure_future(first.keep_telling())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not told.is_set()
    first.noted(_linked(first), encode_peer_call(PeerMethod.CONFIRM, {"2": {"70": 3}}))
    async with asyncio.timeout(20):
        await told.wait()
    telling.cancel()

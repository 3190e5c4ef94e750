"""Which connections a node keeps when many come: those of other addresses give way to the few of one."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from pqbroker.broker.ground.metrics import Metrics
from pqbroker.broker.kafka.net.connections import Connections
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, parse
from pqbroker.conf.shares import holder_of

SIZE = 64
"""Of which 8 are the reserve, and one is a holder's first part."""


@dataclass
class Peer:
    host: str
    holder: str


@dataclass(eq=False)
class Connection:
    """What the limits see of a connection."""

    peer: Peer
    active_at: float
    is_idle: bool = True
    is_open: bool = field(default=True)

    def give_way(self) -> None:
        self.is_open = False


class Node:
    """Its connections, beside a clock that the test moves."""

    def __init__(self, size: int = SIZE, **settings: Any) -> None:
        self.now = 100.0
        self.metrics = Metrics()
        given = BrokerSettings(**settings)
        self.connections = Connections(cast(Any, self), self.metrics, lambda: size, lambda: given)
        self._port = 0

    def time(self) -> float:
        return self.now

    def come(self, host: str, *, is_idle: bool = True) -> Connection | None:
        """A connection comes; None when it was refused."""
        self._port += 1
        connection = Connection(Peer(host, holder_of(host, self._port)), self.now, is_idle)
        return connection if self.connections.add(cast(Any, connection)) else None

    def fill(self, host: str, count: int, *, is_idle: bool = True) -> list[Connection]:
        found = [self.come(host, is_idle=is_idle) for _ in range(count)]
        return [one for one in found if one is not None]


def test_one_address_has_all_but_the_reserve() -> None:
    node = Node()
    assert len(node.fill("192.0.2.1", SIZE)) == SIZE * 7 // 8
    assert node.metrics.connections_refused == SIZE // 8
    assert node.come("192.0.2.2") is not None
    assert node.metrics.connections_gave_way == 0


def test_when_the_reserve_is_used_up_the_address_with_most_gives_way_first_what_is_idle_longest() -> None:
    node = Node()
    held = node.fill("192.0.2.1", SIZE * 7 // 8)
    for number in range(SIZE // 8):
        assert node.come(f"192.0.2.{2 + number}") is not None
    held[0].is_idle = False
    node.now += 0.1
    held[1].active_at = node.now
    for number in range(3):
        assert node.come(f"198.51.100.{number}") is not None
    assert [index for index, one in enumerate(held) if not one.is_open] == [2, 3, 4]
    assert (node.metrics.connections_gave_way, len(node.connections)) == (3, SIZE)


def test_where_none_is_idle_one_in_work_gives_way() -> None:
    node = Node()
    held = node.fill("192.0.2.1", SIZE * 7 // 8, is_idle=False)
    for number in range(SIZE // 8 + 1):
        assert node.come(f"192.0.2.{2 + number}") is not None
    assert [one.is_open for one in held] == [False] + [True] * (len(held) - 1)


def test_an_address_over_its_share_takes_the_place_of_its_own_idle_ones_only() -> None:
    node = Node()
    held = node.fill("192.0.2.1", SIZE * 7 // 8, is_idle=False)
    node.now += 10
    assert node.come("192.0.2.1") is None
    held[3].is_idle = True
    node.now += 2
    assert node.come("192.0.2.1") is not None
    assert not held[3].is_open
    assert len(node.connections) == SIZE * 7 // 8


def test_one_that_asked_meanwhile_does_not_give_way() -> None:
    node = Node()
    held = node.fill("127.0.0.1", SIZE)
    node.now += 2
    assert node.come("127.0.0.1") is not None
    assert not held[0].is_open
    held[1].active_at = node.now
    assert node.come("127.0.0.1") is not None
    assert (held[1].is_open, held[2].is_open) == (True, False)


def test_of_loopback_each_connection_is_a_holder_and_the_one_idle_longest_gives_way() -> None:
    node = Node()
    assert len(node.fill("127.0.0.1", SIZE + 5)) == SIZE
    node.now += 2
    assert node.come("127.0.0.1") is not None
    assert node.metrics.connections_gave_way == 1


def test_what_has_closed_is_counted_no_more() -> None:
    node = Node()
    held = node.fill("192.0.2.1", SIZE * 7 // 8)
    for one in held:
        node.connections.remove(cast(Any, one))
        node.connections.remove(cast(Any, one))
    assert len(node.fill("192.0.2.1", SIZE)) == SIZE * 7 // 8


def test_max_connections_per_ip_is_a_limit_of_each_address_and_has_overrides() -> None:
    node = Node(connections_per_ip_max=2, connections_per_ip_overrides="192.0.2.9:3, [2001:db8::1]:0,192.0.2.8:1")
    assert [len(node.fill(host, 5)) for host in ("192.0.2.1", "192.0.2.9", "2001:db8::1", "127.0.0.1")] == [2, 3, 0, 2]
    assert node.metrics.connections_refused == 3 + 2 + 5 + 3


@pytest.mark.parametrize("text", ["192.0.2.9", "192.0.2.9:", "192.0.2.9:-1", "somewhere:3", ":3", "192.0.2.9:1x"])
def test_overrides_without_an_address_or_a_count_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides is .* ADDRESS:COUNT"):
        parse(BrokerSettings, {"max.connections.per.ip.overrides": text})


def test_connections_that_all_asked_since_the_order_was_made_are_ordered_again() -> None:
    node = Node()
    held = node.fill("192.0.2.1", SIZE)
    for number in range(SIZE // 8):
        assert node.come(f"192.0.2.{number + 10}") is not None
    assert node.come("192.0.2.30") is not None
    node.now += 0.5
    for connection in held:
        connection.active_at = node.now
    assert node.come("192.0.2.31") is not None
    assert node.metrics.connections_gave_way == 2

import socket

import pytest

from pqbroker.broker.ground.listeners import (
    Address,
    AddressError,
    CannotListen,
    Listener,
    advertised_addresses,
    bind,
    bind_all,
    parse_address,
    parse_listeners,
)
from pqbroker.broker.node.server import Server
from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.messages.metadata import MetadataRequest
from pqbroker.storage.memory import MemoryEngine
from tests.broker.conftest import ENGINE_BYTES
from tests.broker.wire import Client


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:65535", Address("::1", 65_535)),
    ],
)
def test_host_and_port_are_read_and_written_alike(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "9092", ":9092", "host:", "host:port", "host:65536", "host:-1", "::1:9092", "host:٣"]
)
def test_what_is_no_host_and_port_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(AddressError, match="HOST:PORT"):
        parse_address(text)


def test_port_0_of_localhost_is_one_port_on_both_loopbacks() -> None:
    sockets, address = bind(Address("localhost", 0))
    names = [listening.getsockname()[:2] for listening in sockets]
    for listening in sockets:
        listening.close()
    assert address.host == "localhost"
    assert address.port > 0
    assert names[0] == ("127.0.0.1", address.port)
    assert names[1:] in ([], [("::1", address.port)])


def test_a_port_in_use_is_refused_with_cause_and_cure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CannotListen, match=r"port is in use; choose another"):
            bind(Address("127.0.0.1", taken.getsockname()[1]))


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(CannotListen, match="cannot listen on"):
        bind(Address(host, 0))


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "A://[::1]:1,B://host:2", "A://host:1"])
def test_listeners_are_read_and_written_alike(text: str) -> None:
    assert ",".join(map(str, parse_listeners(text))) == text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a:1,b:2", "one name"), ("A://a:1,A://b:2", "one name"), ("A://a", "HOST:PORT"), ("", "HOST:PORT"),
        ("://a:1", "no name"),
    ],
)  # fmt: skip
def test_listeners_that_cannot_be_told_apart_are_refused(text: str, word: str) -> None:
    with pytest.raises(AddressError, match=word):
        parse_listeners(text)


@pytest.mark.parametrize(
    ("listeners", "text", "told"),
    [
        ("a:1", "", {}),
        ("a:1", "b:2", {"PLAINTEXT": "b:2"}),
        ("a:1", "X://b:2,Y://c:3", {"PLAINTEXT": "b:2"}),
        ("Y://a:1", "X://b:2,Y://c:3", {"Y": "c:3"}),
        ("X://a:1,Y://a:2", "X://b:2,Y://c:3", {"X": "b:2", "Y": "c:3"}),
        ("X://a:1,Y://a:2", "Y://c:3", {"Y": "c:3"}),
        ("a:1", "b:{port}", {"PLAINTEXT": "b:1"}),
        ("X://a:1,Y://a:2", "X://b:{port},Y://c-{node}:{port}", {"X": "b:1", "Y": "c-{node}:2"}),
    ],
)
def test_each_listener_tells_what_is_advertised_for_it(listeners: str, text: str, told: dict[str, str]) -> None:
    found = advertised_addresses(parse_listeners(listeners), text)
    assert {name: str(address) for name, address in found.items()} == told


def test_an_address_advertised_for_no_listener_is_refused() -> None:
    with pytest.raises(AddressError, match="names Z; the listeners are X, Y"):
        advertised_addresses(parse_listeners("X://a:1,Y://a:2"), "X://b:1,Z://c:2")


def test_a_listener_that_cannot_be_bound_leaves_none_open() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free = bind(Address("127.0.0.1", 0))
        free[0][0].close()
        listeners = [Listener("A", free[1]), Listener("B", Address("127.0.0.1", taken.getsockname()[1]))]
        with pytest.raises(CannotListen, match="in use"):
            bind_all(listeners)
        again, _ = bind(free[1])
        again[0].close()


async def test_clients_are_told_to_come_back_the_way_they_came() -> None:
    settings = BrokerSettings(advertised_listeners="HOST://localhost:9092,NETWORK://broker:9094")
    listeners = parse_listeners("HOST://127.0.0.1:0,NETWORK://127.0.0.1:0,PLAIN://127.0.0.1:0")
    server = Server(settings, MemoryEngine(ENGINE_BYTES), listeners)
    await server.start()
    told = {}
    for listener in server.listeners:
        client = await Client.connect(listener.address.host, listener.address.port)
        broker = (await client.ask(MetadataRequest(topics=[]))).brokers[0]
        told[listener.name] = (broker.host, broker.port)
        await client.close()
    plain = server.listeners[2].address
    await server.stop()
    assert told == {"HOST": ("localhost", 9092), "NETWORK": ("broker", 9094), "PLAIN": (plain.host, plain.port)}

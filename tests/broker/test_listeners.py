import socket

import pytest

from pqbroker.broker.addresses import Address, AddressError, parse_address
from pqbroker.broker.listeners import bind


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
        with pytest.raises(AddressError, match=r"port is in use; choose another"):
            bind(Address("127.0.0.1", taken.getsockname()[1]))


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(AddressError, match="cannot listen on"):
        bind(Address(host, 0))

"""Ports of several nodes: collisions, ports that are taken, and clients that come to a shared one."""

import socket

import pytest

from pqbroker.broker.ground.listeners import (
    HTTP_NAME,
    Address,
    AddressError,
    CannotListen,
    Listener,
    bind_all,
    close_all,
    parse_listeners,
)
from pqbroker.broker.ground.node_ports import check_node_ports, hold_ports

HTTP = Listener(HTTP_NAME, Address("127.0.0.1", 8092))


def test_ports_that_do_not_meet_are_taken() -> None:
    check_node_ports(parse_listeners("A://127.0.0.1:9092,B://127.0.0.1:9096"), HTTP, 3)
    check_node_ports(parse_listeners("A://127.0.0.1:0,B://127.0.0.1:0"), HTTP, 3)


@pytest.mark.parametrize(
    ("listeners", "nodes", "cause"),
    [
        ("A://127.0.0.1:9092,B://127.0.0.1:9095", 3, "A and B would both have port 9095: with 3 nodes"),
        ("A://127.0.0.1:8090", 2, "A and HTTP would both have port 8092"),
        ("A://127.0.0.1:65534", 2, "2 nodes have the ports 65535 to 65536"),
    ],
)
def test_ports_that_meet_or_do_not_exist_are_refused(listeners: str, nodes: int, cause: str) -> None:
    with pytest.raises(AddressError, match=cause):
        check_node_ports(parse_listeners(listeners), HTTP, nodes)


def test_ports_are_held_and_each_node_listens_on_the_shared_one_and_its_own() -> None:
    (found,), held = hold_ports(parse_listeners("127.0.0.1:0"), 2)
    with held:
        nodes = [bind_all([Listener(found.name, found.address, node=number)]) for number in (1, 2)]
        ports = [sorted({one.getsockname()[1] for one in bound[0][1]}) for bound in nodes]
        first = found.address.port
        assert ports == [[first, first + 1], [first, first + 2]]
        with socket.create_connection(("127.0.0.1", first), timeout=30):
            pass
        for bound in nodes:
            close_all(bound)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", first), timeout=30)  # what only holds a port takes no client


def test_a_port_of_a_node_that_another_program_has_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        last = taken.getsockname()[1]
        # the two below may be another program's too: the refusal names the first that is taken
        with pytest.raises(CannotListen, match=f"({last - 2}|{last - 1}|{last}): the port is in use"):
            hold_ports([Listener("A", Address("127.0.0.1", last - 2))], 3)


def test_two_brokers_do_not_share_their_ports() -> None:
    (found,), held = hold_ports(parse_listeners("127.0.0.1:0"), 2)
    with held:
        bound = bind_all([Listener(found.name, found.address, node=2)])
        with pytest.raises(CannotListen, match="the port is in use"):
            hold_ports([found], 2)
        close_all(bound)

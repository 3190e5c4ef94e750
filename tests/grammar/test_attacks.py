"""What was seen to take gigabytes and minutes for kilobytes of request takes neither; limits refuse the rest."""

import time

import pytest

from tests.broker.wire import request_frame
from tests.grammar.attacks import (
    ATTACKS,
    PARTITIONS,
    configs_of_the_broker,
    deleted_records,
    launch,
    unknown_partitions,
)
from tests.grammar.long_lists import Shape, ask, long_lists
from tests.support.attacked import TURN_EVER_S_MAX, attacked

DEADLINE_S = 30
LONGEST = {
    ("CreateTopics", ("topics", "configs")),
    ("DeleteTopics", ("topics",)),
    ("IncrementalAlterConfigs", ("resources", "configs")),
    ("OffsetCommit", ("topics",)),
    ("OffsetFetch", ("topics",)),
}
"""Lists that held the loop for longer than a turn may take; `python -m tests.grammar --lists` sends all that there are.
"""


def test_each_attack_leaves_others_their_turn() -> None:
    with attacked(turn_s_max=TURN_EVER_S_MAX) as node:
        node.create("t", PARTITIONS)
        for name in ATTACKS:
            assert launch(node, name) > 20, name


def test_lists_of_many_elements_leave_others_their_turn() -> None:
    with attacked(turn_s_max=TURN_EVER_S_MAX) as node:
        node.create("t", PARTITIONS)
        different = (asked for asked in long_lists() if asked.shape is Shape.DIFFERENT)
        found = [asked for asked in different if (asked.api.name, asked.path) in LONGEST]
        assert len(found) >= len(LONGEST)
        for asked in found:
            assert ask(node, asked) > 20, asked


@pytest.mark.alone
def test_more_elements_than_the_limit_close_the_connection() -> None:
    with attacked() as node:
        for asked, version in ((unknown_partitions(32_769), 12), (deleted_records(32_769), 2)):
            with node.connect() as caller:
                caller.socket.sendall(request_frame(asked, version))
                assert caller.socket.recv(1) == b""
        assert "FetchRequest v12 has more than 32768 elements" in node.broker.log


@pytest.mark.alone
def test_an_answer_over_the_limit_closes_the_connection() -> None:
    with attacked({"pqbroker.answer.bytes.max": str(1 << 20)}) as node, node.connect() as caller:
        caller.socket.sendall(request_frame(configs_of_the_broker(100), 4))
        assert caller.socket.recv(1) == b""
        assert "longer than 1048576 bytes (pqbroker.answer.bytes.max)" in node.broker.log


@pytest.mark.alone
def test_peers_that_take_no_answer_do_not_keep_others_waiting() -> None:
    settings = {"pqbroker.unsent.bytes.max": str(4 << 20), "pqbroker.answer.stall.ms": "1000"}
    with attacked(settings) as node:
        idle = [node.connect() for _ in range(3)]
        for caller in idle:
            caller.socket.sendall(request_frame(configs_of_the_broker(200), 4))
        with node.connect() as caller:
            until = time.monotonic() + DEADLINE_S
            while "of its answers" not in node.broker.log:
                assert time.monotonic() < until
                caller.socket.sendall(request_frame(configs_of_the_broker(20), 4))
                assert caller.skip() > 1 << 20
        for caller in idle:
            caller.socket.close()

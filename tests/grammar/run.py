"""Sends random requests to a broker over several connections; `attacked` says what must hold then and afterwards."""

import socket
import struct
import threading
import time
from dataclasses import dataclass, field

from tests.grammar.requests import Requests
from tests.support.attacked import TURN_S_MAX, Attacked, Caller, attacked

CONNECTIONS = 4
ANSWER_WAIT_S = 0.25
"""An answer that takes longer is not waited for: the connection closes, as those of impatient clients do."""
ANSWER_BYTES_MAX = 64 << 20
SETTINGS = {"pqbroker.partitions.max": "1000", "group.max.session.timeout.ms": "10000", "fetch.max.bytes": "1000000"}
TOPICS = {"a": 3, "b": 1}


@dataclass(slots=True)
class Tally:
    """What one connection after the other has seen."""

    sent: int = 0
    answered: int = 0
    closed: int = 0
    unanswered: int = 0
    longest_answer: int = 0
    errors: list[Exception] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.sent} requests: {self.answered} answered, {self.closed} connections closed by the broker, "
            f"{self.unanswered} not waited for; longest answer {self.longest_answer} bytes"
        )


def attack(requests_max: int, seed: int, time_s_max: float, turn_s_max: float = TURN_S_MAX) -> Tally:
    """Send that many requests, or as many as the time allows; AssertionError when something does not hold."""
    tally = Tally()
    with attacked(SETTINGS, turn_s_max=turn_s_max) as node:
        for topic, partitions in TOPICS.items():
            node.create(topic, partitions)
        until = time.monotonic() + time_s_max
        share = requests_max // CONNECTIONS
        threads = [
            threading.Thread(target=_send, args=(node, Requests(seed + number), share, until, tally))
            for number in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if tally.errors:
            raise tally.errors[0]
        print(tally, flush=True)
    return tally


def _send(node: Attacked, requests: Requests, count: int, until: float, tally: Tally) -> None:
    caller = node.connect(ANSWER_WAIT_S)
    try:
        for _ in range(count):
            if time.monotonic() > until or not node.broker.running:
                break
            tally.sent += 1
            if not _exchange(caller, requests.next(), tally):
                caller.socket.close()
                caller = node.connect(ANSWER_WAIT_S)
    except Exception as error:  # noqa: BLE001 (of this thread; raised where it is joined)
        tally.errors.append(error)
    finally:
        caller.socket.close()


def _exchange(caller: Caller, frame: bytes, tally: Tally) -> bool:
    """Send a frame and take its answer; False when the connection is of no use any more."""
    (size,) = struct.unpack_from(">i", frame)
    is_whole: bool = size == len(frame) - 4
    try:
        caller.socket.settimeout(30)
        caller.socket.sendall(frame)
        caller.socket.settimeout(ANSWER_WAIT_S)
        if not is_whole:
            caller.socket.shutdown(socket.SHUT_WR)
        size = caller.skip()
    except TimeoutError:
        tally.unanswered += 1
        return False
    except OSError:
        tally.closed += 1
        return False
    tally.answered += 1
    tally.longest_answer = max(tally.longest_answer, size)
    assert size <= ANSWER_BYTES_MAX
    return is_whole

"""HTTP beside long Kafka requests by the dozen: both wait in one queue for their turns of the loop."""

import http.client
import threading
import time

from pqbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.wire import request_frame
from tests.support.attacked import TURN_EVER_S_MAX, Attacked, attacked

FLOODING = 24
"""Connections that send one long request after another."""
KEYS = 5_000
REQUESTS_LEAST = 50
PATHS = ("/v1/topics", "/health", "/v1/groups")
ASKED = 60


def test_http_is_answered_while_long_requests_fill_the_queue() -> None:
    with attacked(turn_s_max=TURN_EVER_S_MAX) as node:
        flood = _Flood(node)
        try:
            took_s = _ask_http(node.broker.http)
        finally:
            flood.stop()
        assert flood.answered >= REQUESTS_LEAST
        print(f"{flood.answered} long requests; HTTP: slowest {took_s[-1]:.3f} s, median {took_s[ASKED // 2]:.3f} s")
        assert took_s[-1] < node.answer_s_max


class _Flood:
    """Sends long requests from `FLOODING` threads until it is stopped."""

    def __init__(self, node: Attacked) -> None:
        self.answered = 0
        self._frame = request_frame(FindCoordinatorRequest(coordinator_keys=["g"] * KEYS), 6)
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(node,)) for _ in range(FLOODING)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _send(self, node: Attacked) -> None:
        with node.connect() as caller:
            while not self._is_over.is_set():
                caller.socket.sendall(self._frame)
                caller.skip()
                self.answered += 1


def _ask_http(address: str) -> list[float]:
    """Seconds of each answer, the least first."""
    took_s = []
    connection = http.client.HTTPConnection(address, timeout=30)
    for number in range(ASKED):
        started = time.perf_counter()
        connection.request("GET", PATHS[number % len(PATHS)])
        answer = connection.getresponse()
        answer.read()
        took_s.append(time.perf_counter() - started)
        assert answer.status == 200
    connection.close()
    return sorted(took_s)

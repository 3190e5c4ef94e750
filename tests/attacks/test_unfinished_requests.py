"""Requests that never arrive whole."""

import struct
import threading

import pytest

from pqbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.wire import request_frame
from tests.support.attacked import TURN_EVER_S_MAX, Attacked, Caller, attacked

pytestmark = pytest.mark.alone

MIB = 1 << 20
CLAIM = struct.pack(">i", 100 * MIB)


def test_sixty_requests_of_which_the_end_is_missing() -> None:
    with attacked({"pqbroker.unfinished.stall.ms": "500"}, turn_s_max=TURN_EVER_S_MAX) as node:
        attackers = [node.connect() for _ in range(60)]
        threads = [threading.Thread(target=_send_99_mib, args=(attacker,)) for attacker in attackers]
        for thread in threads:
            thread.start()
        _send_slowly(node)
        for attacker in attackers:
            attacker.close()
        for thread in threads:
            thread.join()
        assert "pqbroker.unfinished.bytes.max" in node.broker.log


def _send_99_mib(attacker: Caller) -> None:
    try:
        attacker.socket.sendall(CLAIM)
        for _ in range(99):
            attacker.socket.sendall(bytes(MIB))
    except OSError:
        return  # closed by the broker, or by the test


def _send_slowly(node: Attacked) -> None:
    """A request of 90 MiB passes, though in pieces and begun amid the others."""
    data = PartitionProduceData(index=0, records=memoryview(bytearray(90 * MIB)))
    topics = [TopicProduceData(name="unknown", partition_data=[data])]
    request = request_frame(ProduceRequest(acks=1, topic_data=topics), 9)
    for _ in range(5):
        legitimate = node.connect()
        try:
            for start in range(0, len(request), MIB):
                legitimate.socket.sendall(request[start : start + MIB])
            legitimate.receive()
        except OSError:
            continue
        finally:
            legitimate.close()
        return
    raise AssertionError("a request of 90 MiB never passed")

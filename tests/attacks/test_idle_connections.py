"""Connections by the thousand that ask little."""

from pqbroker.protocol.messages.metadata import MetadataRequest
from tests.support.attacked import TURN_EVER_S_MAX, attacked

CONNECTIONS = 800
EACH_BYTES_MAX = 16 << 10
"""Twice what one takes; a receive buffer for each would be four times as much."""


def test_an_idle_connection_holds_no_buffer() -> None:
    with attacked(turn_s_max=TURN_EVER_S_MAX) as node:
        before = node.rss_bytes()
        idle = [node.connect() for _ in range(CONNECTIONS)]
        for one in idle:
            one.ask(MetadataRequest(topics=[]))
        assert node.rss_bytes() - before < CONNECTIONS * EACH_BYTES_MAX
        for one in idle:
            one.close()

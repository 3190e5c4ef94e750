"""Connections by the thousand that ask little."""

from pathlib import Path

import pytest

from pqbroker.protocol.messages.metadata import MetadataRequest
from tests.attacks.victim import Attacker, attacked, memory_bytes

pytestmark = pytest.mark.alone

CONNECTIONS = 800
EACH_BYTES_MAX = 16 << 10
"""Twice what one takes; a receive buffer for each would be four times as much."""


def test_an_idle_connection_holds_no_buffer(tmp_path: Path) -> None:
    with attacked(tmp_path) as victim:
        before = memory_bytes(victim)
        idle = [Attacker(victim.kafka) for _ in range(CONNECTIONS)]
        for one in idle:
            one.ask(MetadataRequest(topics=[]))
        assert memory_bytes(victim) - before < CONNECTIONS * EACH_BYTES_MAX
        for one in idle:
            one.close()

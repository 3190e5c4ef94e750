"""Random frames before a login: no traceback, nothing kept, nobody comes past the gate."""

import logging

import pytest

from tests.broker.kafka.net.login_fuzz import fuzz
from tests.support.depth import examples


@pytest.mark.parametrize("seed", range(examples(40, least=2)))
async def test_nobody_comes_past_the_gate(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    done = await fuzz(1000, seed)
    assert done.held_bytes == 0
    assert done.answered > 20
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []

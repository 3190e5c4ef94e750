import logging

import pytest

from pqbroker.broker.ground.seldom_log import SeldomLog


def test_a_flood_of_a_line_is_one_line_a_second_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    seldom = SeldomLog(logging.getLogger("seldom"), lambda: now[0])
    caplog.set_level(logging.INFO)
    for number in range(1000):
        now[0] = 100.0 + number / 400
        seldom.info("refused: %d", number)
        seldom.warning("another")
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert told == [
        "refused: 0",
        "refused: 400 (and 399 more like this since the last such line)",
        "refused: 800 (and 399 more like this since the last such line)",
    ]
    assert len(caplog.records) == 6


def test_an_error_keeps_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    SeldomLog(logging.getLogger("seldom")).error("failed", ValueError("why"))
    assert caplog.records[0].exc_info is not None
    assert "why" in caplog.text

"""Limits are stretched by what else wants the cores, and by nothing where that is little."""

import os
import subprocess
import sys
import time

from tests.support.crowding import Crowding

BUSY = 12


def test_a_crowd_stretches_limits_and_what_has_not_looked_stretches_nothing() -> None:
    assert Crowding().times == 1.0
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        with Crowding() as crowding:
            time.sleep(1.0)
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert crowding.times >= BUSY / 2 / max(3, os.cpu_count() or 1)

"""A suite that is started in the background, with signals ignored, tests interrupts all the same."""

import subprocess
import sys

INTERRUPTED = """
import signal
import tests.conftest
for number in (signal.SIGINT, signal.SIGTERM):
    assert signal.getsignal(number) is not signal.SIG_IGN, number
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_suite_that_was_started_with_signals_ignored_can_be_interrupted() -> None:
    command = ["sh", "-c", "trap '' INT TERM HUP QUIT PIPE; exec \"$@\"", "sh", sys.executable, "-c", INTERRUPTED]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("interrupted\n", 0), ran.stderr

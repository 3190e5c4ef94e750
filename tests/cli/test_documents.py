"""Commands and programs in the pages about sorted tables and transactions run as they stand there, in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pqbroker.testing import MEMORY, broker

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = 'pqbroker() { "$PYTHON" -P -m pqbroker "$@"; }; set -e -o pipefail\n'
_TIMEOUT_S = 120
_WAITS = "waiting for an answer"
"""Part of what a command prints on a slow machine."""
_ADDRESS = "127.0.0.1:8092"


def blocks(page: str, language: str, heading: str = "") -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = [block for kind, block in _BLOCK.findall(text[text.index(heading) :]) if kind == language]
    assert found
    return found


@pytest.mark.parametrize("page", ["sorted-tables.md", "transactions.md", "queues.md"])
def test_commands_of_the_page_run(page: str) -> None:
    with broker(MEMORY) as running:
        addresses = {"PQBROKER_HTTP": running.http, "PQBROKER_BROKER": running.kafka}
        environment = {**os.environ, **addresses, "PYTHON": sys.executable}
        for block in blocks(page, "sh"):
            done = subprocess.run(
                ["bash", "-c", _COMMAND + block.replace(_ADDRESS, running.http)], env=environment, capture_output=True,
                text=True, check=False, timeout=_TIMEOUT_S,
            )  # fmt: skip
            told = [line for line in done.stderr.splitlines() if _WAITS not in line]
            assert (done.returncode, told) == (0, []), block
            assert '{"error"' not in done.stdout, block


def test_the_program_of_the_clients_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    program = blocks("client.md", "python", "### Sorted tables")[0]
    with broker(MEMORY) as running:
        assert _ADDRESS in program
        exec(compile(program.replace(_ADDRESS, running.http), "client.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "[{'shop': 'north', 'id': 5, 'count': 2, 'note': 'new'}, None]", "[{'count': 3}]",
    ]  # fmt: skip


def test_the_program_of_the_page_about_transactions_runs(capsys: pytest.CaptureFixture[str]) -> None:
    program, *_ = blocks("transactions.md", "python")
    with broker(MEMORY) as running:
        assert _ADDRESS in program
        exec(compile(program.replace(_ADDRESS, running.http), "transactions.md", "exec"), {})
    assert capsys.readouterr().out == "[{'amount': 70}, {'amount': 30}]\n"


def test_the_program_of_the_page_about_queues_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("queues.md", "python")
    with broker(MEMORY) as running:
        assert _ADDRESS in program
        exec(compile(program.replace(_ADDRESS, running.http), "queues.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["1", "[5, 7, 9]", "up_to_date"]

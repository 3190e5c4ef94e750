"""Commands and programs of pages run as they stand there, in their order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pqbroker.client import Client, Column
from pqbroker.testing import broker, memory_broker

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = 'pqbroker() { "$PYTHON" -P -m pqbroker "$@"; }; set -e -o pipefail\n'
_TIMEOUT_S = 120
_WAITS = "waiting for an answer"
"""Part of what a command prints on a slow machine."""
_WRITTEN = '{"topic"'
"""Begin of the line in which `produce --json` says how much it has written."""
_ADDRESS, _KAFKA = "127.0.0.1:8092", "127.0.0.1:9092"


def blocks(page: str, language: str, heading: str = "") -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = [block for kind, block in _BLOCK.findall(text[text.index(heading) :]) if kind == language]
    assert found
    return found


ON_DISK = frozenset(("how-to.md",))
"""Pages whose commands need a data directory."""
RUN = (
    "sorted-tables.md", "transactions.md", "queues.md", "concepts-log.md", "compacted-topics.md", "how-to.md", "sql.md",
    "tables.md", "search.md",
)  # fmt: skip


@pytest.mark.timeout(600)  # dozens of commands, each a process that starts
@pytest.mark.parametrize("page", RUN)
def test_commands_of_the_page_run(page: str, tmp_path: Path) -> None:
    with broker(tmp_path / "data") if page in ON_DISK else memory_broker() as running:
        addresses = {"PQBROKER_HTTP": running.http, "PQBROKER_BROKER": running.kafka}
        environment = {**os.environ, **addresses, "PYTHON": sys.executable}
        for block in blocks(page, "sh"):
            done = subprocess.run(
                ["bash", "-c", _COMMAND + block.replace(_ADDRESS, running.http)], cwd=tmp_path, env=environment,
                capture_output=True, text=True, check=False, timeout=_TIMEOUT_S,
            )  # fmt: skip
            told = [line for line in done.stderr.splitlines() if _WAITS not in line and not line.startswith(_WRITTEN)]
            assert (done.returncode, told) == (0, []), block
            assert '{"error"' not in done.stdout, block


def test_the_programs_of_the_clients_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    programs = blocks("client.md", "python")
    whole, parts = [each for each in programs if _ADDRESS in each], [each for each in programs if _ADDRESS not in each]
    with memory_broker() as running:
        for program in whole:
            exec(compile(program.replace(_ADDRESS, running.http), "client.md", "exec"), {})
        *_, looked_up, counted = capsys.readouterr().out.splitlines()
        assert looked_up == "[{'shop': 'north', 'id': 5, 'count': 2, 'note': 'new'}, None]"
        assert counted == "[{'count': 3}]"
        with Client(running.http) as client:
            client.table("shop.orders").create([Column("id", "int64"), Column("note", "utf8")])
            client.table("shop.stock").insert([{"shop": "north", "id": 5, "count": 3}])
            events = client.table("shop.events")
            names = {"client": client, "events": events, "rows": [{"id": 3}], "many_rows": [{"id": 4}]}
            for program in parts:
                exec(compile(program, "client.md", "exec"), names)
            assert [row["id"] for row in events.rows()] == [1, 2, 3, 4]
    assert capsys.readouterr().out.splitlines()[-1] == "[{'article': 'chair', 'price': 40}]"


def test_the_program_of_the_page_about_transactions_runs(capsys: pytest.CaptureFixture[str]) -> None:
    program, *_ = blocks("transactions.md", "python")
    with memory_broker() as running:
        assert _ADDRESS in program
        exec(compile(program.replace(_ADDRESS, running.http), "transactions.md", "exec"), {})
    assert capsys.readouterr().out == "[{'amount': 70}, {'amount': 30}]\n"


def test_the_program_of_the_page_about_queues_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("queues.md", "python")
    with memory_broker() as running:
        assert _ADDRESS in program
        exec(compile(program.replace(_ADDRESS, running.http), "queues.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["1", "[5, 7, 9]", "up_to_date"]


def test_the_program_that_bills_each_order_once_runs(tmp_path: Path) -> None:
    (program,) = blocks("exactly-once.md", "python")
    with memory_broker() as running:
        assert _KAFKA in program
        (tmp_path / "bill.py").write_text(program.replace(_KAFKA, running.kafka), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "bill.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    assert (done.returncode, done.stdout) == (0, "bill for tea\nbill for cups\n"), done.stderr

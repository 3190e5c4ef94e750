"""Every command and program of the README runs, in a fresh clone and in the order written.

A server stays until the next one or the end, as it would in a reader's second terminal. Ports are free ones.
"""

import re
import select
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.house.sources import ROOT

pytestmark = pytest.mark.timeout(300)

_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
_READY_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: the line it begins on, its language, its text."""

    line: int
    language: str
    text: str

    @property
    def is_server(self) -> bool:
        return self.text.startswith("./run") and "\n" not in self.text.strip()


BLOCKS = [Block(_TEXT.count("\n", 0, each.start()) + 1, each[1], each[2]) for each in _BLOCK.finditer(_TEXT)]


class Reader:
    """Somebody who types what the README says, in the clone."""

    def __init__(self, clone: Path, environment: dict[str, str], kafka: str, http: str) -> None:
        self._clone = clone
        self._environment = environment
        self._kafka = kafka
        self._http = http
        self._server: subprocess.Popen[str] | None = None

    def serve(self, block: Block) -> str:
        """Start the block's server in place of an earlier one; its ready line."""
        self.stop()
        _, _, arguments = block.text.strip().partition(" ")
        command = f"./run {arguments or 'serve'} --kafka {self._kafka} --http {self._http}"
        self._server = subprocess.Popen(
            ["sh", "-c", f"exec {command}"], cwd=self._clone, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdout is not None
        assert select.select([self._server.stdout], [], [], _READY_TIMEOUT_S)[0], "not ready in time"
        return self._server.stdout.readline()

    def follow(self, block: Block) -> None:
        """Type a block of commands, or save and run a program; the first server runs meanwhile unless another does."""
        if self._server is None:
            self.serve(next(block for block in BLOCKS if block.is_server))
        text = block.text.replace("127.0.0.1:9092", self._kafka).replace("127.0.0.1:8092", self._http)
        command = ["sh", "-ec", text]
        if block.language == "python":
            program = self._clone.parent / f"line_{block.line}.py"
            program.write_text(text, encoding="utf-8")
            command = [str(self._clone / ".venv" / "bin" / "python"), str(program)]
        done = subprocess.run(command, cwd=self._clone, env=self._environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"

    def stop(self) -> None:
        """Stop the server, which must drain and exit with 0."""
        if self._server is not None:
            self._server.terminate()
            assert self._server.wait(_READY_TIMEOUT_S) == 0
            assert self._server.stdout is not None
            self._server.stdout.close()
            self._server = None


@pytest.fixture(scope="module")
def reader(clone: Path, environment: dict[str, str]) -> Iterator[Reader]:
    reader = Reader(clone, environment, _free_address(), _free_address())
    yield reader
    reader.stop()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line {block.line}")
def test_what_the_readme_says_runs(block: Block, reader: Reader) -> None:
    if block.is_server:
        assert reader.serve(block).startswith("ready kafka=")
    else:
        reader.follow(block)


def test_the_readme_has_servers_commands_and_programs() -> None:
    assert [block.is_server for block in BLOCKS].count(True) == 2
    assert {block.language for block in BLOCKS} == {"sh", "python"}


def test_no_block_escapes_by_another_language() -> None:
    assert re.findall(r"^```(\w+)$", _TEXT, re.MULTILINE) == [block.language for block in BLOCKS]


def test_what_the_readme_links_to_is_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", _TEXT):
        assert (ROOT / target).exists(), target


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"

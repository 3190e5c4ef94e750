"""Every block of the README runs, in the order written, with what it has had installed before and no more.

A newcomer has a fresh clone and its environment: no client, kcat or test framework. Programs are saved under the name
in their first line, run by the command before them. A server stays until the end. Ports are free ones.
"""

import os
import re
import select
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.house.sources import ROOT

pytestmark = pytest.mark.timeout(900)  # packages are installed, beside whatever else the machine does

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_NAME = re.compile(r"(?:#|//) ([\w.]+)\n")
_TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
_READY_TIMEOUT_S = 60
_ACTIVATE = ". .venv/bin/activate"
_OFFLINE = re.compile(r"dial tcp|no such host|connection refused|proxyconnect|i/o timeout|GOPROXY|forbidden")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its line, language and text, the commands in the words before it, and what it is saved as."""

    line: int
    language: str
    text: str
    commands: tuple[str, ...]

    @property
    def is_server(self) -> bool:
        return self.text.startswith("./run") and "\n" not in self.text.strip()

    @property
    def installs(self) -> bool:
        """Whether the words before it have something installed."""
        return any(command.startswith("pip install") for command in self.commands)

    @property
    def program(self) -> str:
        """The file that it is saved as; empty for commands to type."""
        found = _NAME.match(self.text)
        return found[1] if found else ""

    @property
    def needs(self) -> str:
        """The tool that the README says one must have."""
        if self.language == "java" or "pqbroker-pipeline" in self.text:
            return "java"
        return {"go": "go"}.get(self.language, "sh")


def _blocks() -> Iterator[Block]:
    behind = 0
    for found in _BLOCK.finditer(_TEXT):
        words = _TEXT[behind : found.start()]
        behind = found.end()
        yield Block(_TEXT.count("\n", 0, found.start()) + 1, found[1], found[2], tuple(_SPAN.findall(words)))


BLOCKS = list(_blocks())


class Reader:
    """Somebody who types what the README says, in the clone and in a directory of their own."""

    def __init__(self, clone: Path, environment: dict[str, str]) -> None:
        self._clone = clone
        self._environment = environment
        self._kafka, self._http = _free_address(), _free_address()
        self._server: subprocess.Popen[str] | None = None
        self._project = clone.parent / "project"
        self._project.mkdir()
        (self._project / "kafka-clients").symlink_to(ROOT / ".cache" / "kafka-clients-3.9.2")

    def follow(self, block: Block) -> None:
        """Start a server, type commands, or save and run a program."""
        if block.is_server:
            self._serve(block)
            return
        if self._server is None:
            self._serve(next(each for each in BLOCKS if each.is_server))
            self._activate()
        if block.installs:
            self._install()
        text = block.text.replace("127.0.0.1:9092", self._kafka).replace("127.0.0.1:8092", self._http)
        if block.program:
            (self._project / block.program).write_text(text, encoding="utf-8")
            self._type(next(each for each in block.commands if each.endswith(block.program)), self._project)
        else:
            self._type(text, self._clone)
        if _ACTIVATE in block.text:
            self._activate()

    def stop(self) -> None:
        """Stop the server, which must drain and exit with 0."""
        if self._server is not None:
            self._server.terminate()
            assert self._server.wait(_READY_TIMEOUT_S) == 0
            assert self._server.stdout is not None
            self._server.stdout.close()
            self._server = None

    def _serve(self, block: Block) -> None:
        command = f"{block.text.strip()} serve --kafka {self._kafka} --http {self._http}"
        self._server = subprocess.Popen(
            ["sh", "-c", f"exec {command}"], cwd=self._clone, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdout is not None
        assert select.select([self._server.stdout], [], [], _READY_TIMEOUT_S)[0], "not ready in time"
        assert self._server.stdout.readline().startswith("ready kafka=")

    def _activate(self) -> None:
        paths = [str(self._clone / ".venv" / "bin"), self._environment["PATH"]]
        self._environment = {**self._environment, "PATH": os.pathsep.join(paths)}

    def _install(self) -> None:
        """What `pip install` would bring comes from the Python of these tests, so that they need no network."""
        packages = next((self._clone / ".venv").glob("lib/python*/site-packages"))
        (packages / "installed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        script = self._clone / ".venv" / "bin" / "pytest"
        script.write_text('#!/bin/sh\nexec python -m pytest "$@"\n', encoding="utf-8")
        script.chmod(0o755)

    def _type(self, text: str, directory: Path) -> None:
        environment = {**self._environment, "PQBROKER_BROKER": self._kafka, "PQBROKER_HTTP": self._http}
        done = subprocess.run(["sh", "-ec", text], cwd=directory, env=environment, capture_output=True, text=True)
        if done.returncode != 0 and text.startswith("go ") and _OFFLINE.search(done.stderr):
            pytest.skip(f"Go's modules are out of reach: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def reader(clone: Path, environment: dict[str, str]) -> Iterator[Reader]:
    ours = Path(sys.executable).parent
    paths = [str(Path(sys.executable).resolve().parent)]
    paths += [path for path in environment["PATH"].split(os.pathsep) if Path(path) != ours]
    reader = Reader(clone, {**environment, "PATH": os.pathsep.join(paths)})
    yield reader
    reader.stop()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line {block.line}")
def test_what_the_readme_says_runs(block: Block, reader: Reader) -> None:
    if shutil.which(block.needs) is None:
        pytest.skip(f"{block.needs} is not installed")
    reader.follow(block)


def test_the_readme_has_a_server_commands_and_programs() -> None:
    assert [block.is_server for block in BLOCKS].count(True) == 1
    assert {block.language for block in BLOCKS} == {"sh", "python", "java", "go"}
    assert all(bool(block.program) == (block.language != "sh") for block in BLOCKS)


def test_the_readme_is_short_and_assumes_no_index_that_has_us() -> None:
    assert _TEXT.count("\n") <= 192
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert not re.search(r"pip install '?pqbroker", document.read_text(encoding="utf-8")), document


def test_what_the_documents_link_to_is_there() -> None:
    for document in (ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document}: {target}"


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"

"""A user's shell: commands in this process, which is quick, or in one of their own, where signals and pipes matter."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import pytest

from pqbroker.__main__ import main

TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said, and its exit status."""

    status: int
    output: str
    errors: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The JSON lines; AssertionError with the reason when the command failed."""
        assert self.status == 0, self.errors
        return [json.loads(line) for line in self.output.splitlines()]

    @property
    def object(self) -> dict[str, Any]:
        (one,) = self.objects
        return one


class Shell:
    """Types commands for one broker."""

    def __init__(self, kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.kafka = kafka
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Said:
        """Run a command in this process, at the shell's broker."""
        return self.raw(*arguments, "--broker", self.kafka)

    def raw(self, *arguments: str) -> Said:
        """Run a command as it is written."""
        self._capsys.readouterr()
        status = main(arguments)
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return Said(status, captured.out, captured.err)


def run_here(*arguments: str) -> Said:
    """Run a command in this process, for what outlives a test: there is no `capsys` for it."""
    output, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(output), redirect_stderr(errors):
        status = main(arguments)
    said = Said(status, _written(output), _written(errors))
    assert "Traceback" not in said.errors
    return said


def _written(text: io.TextIOWrapper) -> str:
    text.seek(0)
    return text.read()


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Run a command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "pqbroker", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | environment,
    )  # fmt: skip


def run(*arguments: str, given: str = "", **environment: str) -> Said:
    """Run a command in a process of its own to its end, with lines on standard input."""
    process = start(*arguments, **environment)
    output, errors = process.communicate(given, timeout=TIMEOUT_S)
    assert "Traceback" not in errors
    return Said(process.returncode, output, errors)

"""The driver for franz-go: a Go program that reads (tests/support/go). It is skipped where Go or its modules are out of
reach, which `./test` does not install."""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.drivers.driver import REQUEST_TIMEOUT_S, Message
from tests.support.drivers.security import OPEN, Security

_SOURCES = Path(__file__).resolve().parents[1] / "go"
_PROGRAMS = Path(__file__).resolve().parents[3] / ".cache" / "go"
BUILD_TIMEOUT_S: Final = 300
"""Seconds that a build may take where nothing is cached yet."""
_OFFLINE = re.compile(r"dial tcp|no such host|connection refused|proxyconnect|i/o timeout|GOPROXY|forbidden")


class FranzGoDriver:
    """The part of `driver.Driver` that the program can do."""

    def __init__(self, address: str, security: Security = OPEN) -> None:
        self._address = address
        self._security = {"FRANZ_CA": security.ca, "FRANZ_CERTIFICATE": security.certificate}
        self._program = built()

    def read_to_end(self, topic: str, *, group: str | None = None, offset: int = -1) -> list[tuple[int, Message]]:
        """Read partition 0 up to the record whose key is `the end`: from an offset, or as a member of a group, which
        commits the position there."""
        done = subprocess.run(
            [self._program, self._address, topic, group or "-", str(offset)],
            capture_output=True, text=True, timeout=3 * REQUEST_TIMEOUT_S, check=False,
            env=os.environ | self._security,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [_received(json.loads(line)) for line in done.stdout.splitlines()]


def built() -> Path:
    """The program, under a name that changes with the sources; the test is skipped where it cannot be built."""
    return _built("franz", ("build", "."))


def own_tests() -> Path:
    """The program that runs franz-go's own tests; the test is skipped where it cannot be built."""
    return _built("franz-tests", ("test", "-c", "github.com/twmb/franz-go/pkg/kgo"))


def _built(name: str, command: tuple[str, ...]) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    sources = b"".join(source.read_bytes() for source in sorted(_SOURCES.iterdir()))
    program = _PROGRAMS / f"{name}-{hashlib.sha256(sources).hexdigest()[:16]}"
    if program.exists():
        return program
    done = subprocess.run(
        [go, command[0], "-o", str(program), *command[1:]],
        cwd=_SOURCES, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode and _OFFLINE.search(done.stderr):
        pytest.skip(f"Go's modules are out of reach: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return program


def _received(shown: Any) -> tuple[int, Message]:
    headers = tuple((header["Key"], _content(header["Value"])) for header in shown["Headers"])
    return shown["Offset"], Message(_content(shown["Value"]), _content(shown["Key"]), headers, shown["Timestamp"])


def _content(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)

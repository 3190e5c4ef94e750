"""The driver for franz-go: a Go program that reads (tests/support/go). It is skipped where Go or its modules are out of
reach, which `./test` does not install."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.drivers.driver import REQUEST_TIMEOUT_S, Message

_SOURCES = Path(__file__).resolve().parents[1] / "go"
_PROGRAM = Path(__file__).resolve().parents[3] / ".cache" / "go" / "franz"
_BUILD_TIMEOUT_S = 300
_OFFLINE = re.compile(r"dial tcp|no such host|connection refused|proxyconnect|i/o timeout|GOPROXY|forbidden")


class FranzGoDriver:
    """The part of `driver.Driver` that the program can do."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._program = _built()

    def read_to_end(self, topic: str, *, group: str | None = None, offset: int = -1) -> list[tuple[int, Message]]:
        """Read partition 0 up to the record whose key is `the end`: from an offset, or as a member of a group, which
        commits the position there."""
        done = subprocess.run(
            [self._program, self._address, topic, group or "-", str(offset)],
            capture_output=True, text=True, timeout=3 * REQUEST_TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [_received(json.loads(line)) for line in done.stdout.splitlines()]


def _built() -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    done = subprocess.run(
        [go, "build", "-o", str(_PROGRAM), "."],
        cwd=_SOURCES, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode and _OFFLINE.search(done.stderr):
        pytest.skip(f"Go's modules are out of reach: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return _PROGRAM


def _received(shown: Any) -> tuple[int, Message]:
    headers = tuple((header["Key"], _content(header["Value"])) for header in shown["Headers"])
    return shown["Offset"], Message(_content(shown["Value"]), _content(shown["Key"]), headers, shown["Timestamp"])


def _content(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)

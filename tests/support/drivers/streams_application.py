"""A Kafka Streams application that counts words (tests/support/java/Counting.java), as a context manager."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.java import program


class Shown(NamedTuple):
    """An application as it shows itself; it has counts while its state is RUNNING."""

    state: str
    counts: dict[str, int]
    windowed: dict[str, int]
    """Counts of all windows of time together."""
    restored: int
    """Records that it has read from its changelogs."""


class StreamsApplication:
    """One running application; it is closed at the end."""

    def __init__(
        self, address: str, name: str, topic: str, directory: Path, guarantee: str = "at_least_once"
    ) -> None:
        arguments = [address, name, topic, str(directory), guarantee]
        self._process: subprocess.Popen[str] = program.start("Counting", arguments, program.NEWER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        program.stop(self._process)

    def show(self) -> Shown:
        """Ask for its state and counts."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        shown: Any = json.loads(self._process.stdout.readline())
        return Shown(shown["state"], shown["counts"], shown["windowed"], shown["restored"])

"""Clients that work while a broker is killed, its directory afterwards, and the command line of such a run."""

import argparse
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.doctor.findings import Weight

T = TypeVar("T")


@contextmanager
def under_load(clients: Sequence[Callable[[threading.Event], None]]) -> Iterator[None]:
    """Run clients, each on a thread, until the block ends and their event is set; raises what one of them raised."""
    stopping = threading.Event()
    with ThreadPoolExecutor(len(clients)) as threads:
        running = [threads.submit(client, stopping) for client in clients]
        try:
            yield
        finally:
            stopping.set()
            for one in running:
                one.result()


def check_directory(data: Path) -> None:
    """Check that the doctor finds nothing in a stopped directory but segments that are harmless."""
    findings = examine_directory(data, {}).found
    found = [one for one in findings if (one.check, one.weight) != ("segment", Weight.HARMLESS)]
    assert not found, found


def run_from_command_line(text: str | None, kills: int, run: Callable[[Path, int, int], T]) -> tuple[int, T]:
    """Run with the kills and the seed of the command line, in a directory of its own; return kills and outcome."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        return options.kills, run(Path(directory), options.kills, options.seed)

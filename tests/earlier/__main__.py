"""Make a directory by an earlier commit, for the test beside this: python -m tests.earlier COMMIT

With --back, fill a directory by the code here, and read it by that commit: for a change that has to work both ways.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import environ
from pathlib import Path
from unittest.mock import patch

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, broker
from tests.earlier.contents import SETTINGS, Ask, fill_first, fill_second, holds, read_back

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "tests" / "data"
EXPECTED = "expected.json"
DIRECTORY = "data"
ARCHIVE_BYTES_MAX = 100 << 10
_NOTES = "LOG"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.earlier", description=__doc__)
    parser.add_argument("commit", metavar="COMMIT")
    parser.add_argument("--back", action="store_true", help="let the commit read what is written here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, _sources(asked.commit, Path(scratch) / "sources") as earlier:
        path = Path(scratch) / DIRECTORY
        if asked.back:
            expected = fill(path, {})
            with _opened(path, earlier) as (running, ask):
                _compare(expected, json.loads(json.dumps(read_back(running, ask))))
        else:
            _pack(asked.commit, path, fill(path, earlier))


def fill(path: Path, environment: Mapping[str, str]) -> dict[str, object]:
    """Fill a directory by a broker that is stopped once and killed at the end; return what is read back before that."""
    with _opened(path, environment) as (running, ask):
        fill_first(running, ask)
    with _opened(path, environment) as (running, ask):
        fill_second(running, ask)
        expected: dict[str, object] = json.loads(json.dumps(read_back(running, ask)))
        running.kill()
    return expected


@contextmanager
def _opened(path: Path, environment: Mapping[str, str]) -> Iterator[tuple[Broker, Ask]]:
    with patch.dict(environ, environment), broker(path, SETTINGS) as running:
        yield running, HttpCalls(lambda: running.http).ask


@contextmanager
def _sources(commit: str, path: Path) -> Iterator[Mapping[str, str]]:
    """The environment by which a Python process takes the sources of a commit for ours."""
    subprocess.run(("git", "worktree", "add", "--detach", "--quiet", path, commit), cwd=ROOT, check=True)
    try:
        yield {"PYTHONPATH": str(path / "src")}
    finally:
        subprocess.run(("git", "worktree", "remove", "--force", path), cwd=ROOT, check=True)


def _pack(commit: str, path: Path, expected: Mapping[str, object]) -> None:
    (path.parent / EXPECTED).write_text(json.dumps(expected), encoding="utf-8")
    archive = ARCHIVES / f"directory-of-{commit}.tar.xz"
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for name in (EXPECTED, DIRECTORY):
            packed.add(path.parent / name, name, filter=_without_machine)
    size = archive.stat().st_size
    print(f"{archive}: {size} bytes")
    if size > ARCHIVE_BYTES_MAX:
        sys.exit(f"it is over {ARCHIVE_BYTES_MAX} bytes: fill less")


def _without_machine(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what names the machine: owners, and RocksDB's notes, which no start reads."""
    if Path(member.name).name.startswith(_NOTES):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _compare(expected: Mapping[str, object], found: Mapping[str, object]) -> None:
    wrong = [name for name in expected if not holds(found.get(name), expected[name])]
    for name in wrong:
        print(f"{name}:\n  written {expected[name]}\n  read    {found.get(name)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

"""An earlier commit of this repository as a tree of files whose broker runs beside this one."""

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


class UnknownCommit(Exception):
    """The repository has no such commit, or it has no broker."""


@contextmanager
def earlier_tree(commit: str) -> Iterator[Path]:
    """The commit's files in a temporary directory. Raises UnknownCommit."""
    with tempfile.TemporaryDirectory(prefix="pqbroker-earlier-") as scratch:
        archive = Path(scratch, "tree.tar")
        packed = subprocess.run(
            ["git", "archive", "--format=tar", f"--output={archive}", commit],
            cwd=_ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if packed.returncode:
            raise UnknownCommit(packed.stderr.strip())
        tree = Path(scratch, "tree")
        with tarfile.open(archive) as files:
            files.extractall(tree)
        with importing_from(tree):
            found = subprocess.run(
                [sys.executable, "-P", "-c", "import pqbroker.broker; print(pqbroker.broker.__file__)"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        if not found.stdout.startswith(str(tree)):
            raise UnknownCommit(f"{commit} has no package pqbroker in src/, or another one is found first")
        yield tree


@contextmanager
def importing_from(tree: Path) -> Iterator[None]:
    """Processes that are started meanwhile import the broker of the tree."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tree / "src")
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before

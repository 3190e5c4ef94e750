"""A fresh copy of the checkout, set up by its own `./run`, for what a newcomer types; and the trees of all files."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.sources import ROOT, sources
from tests.support.cpu_time import no_collector


@pytest.fixture(scope="package", autouse=True)
def trees() -> Iterator[None]:
    """Let the suite keep the trees of all files, which are two million objects, without passes of Python's collector.

    It would walk them again and again, which takes twice as long as to parse them. Nothing of them is left behind.
    """
    with no_collector():
        yield
        sources.cache_clear()


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment of a newcomer's shell: this Python first, the jars that are here already, no broker's settings.

    Packages are installed without compiling all of their modules, of which few are imported.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PQBROKER_", "PYTHON"))}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
        "PIP_COMPILE": "0",
        "PQBROKER_KAFKA_JARS": os.environ.get("PQBROKER_KAFKA_JARS", str(ROOT / ".cache" / "kafka-4.3.1")),
        "PQBROKER_SPARK_JARS": os.environ.get("PQBROKER_SPARK_JARS", str(ROOT / ".cache" / "spark-jars")),
    }


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """A copy of what git would have given, after its first `./run`, with what that installs and nothing else."""
    directory = tmp_path_factory.mktemp("fresh") / "clone"
    copy_checkout(directory)
    first = subprocess.run(["./run", "--version"], cwd=directory, env=environment, capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("pqbroker "), first.stdout
    return directory


def copy_checkout(directory: Path) -> None:
    """Every file that git knows or would take, links as links."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, directory / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)

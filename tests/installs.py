"""The wheel, installed into empty environments as a user does: `python -m tests.installs`. It needs the package index.

- Two builds of two copies of the checkout, with other paths and times, are the same bytes.
- Alone, the wheel serves, and takes less than SITE_BYTES_MAX. With its extras it answers SQL and makes certificates.
- A tool for CycloneDX lists what was installed: `--sbom FILE` keeps its list.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.house.conftest import copy_checkout
from tests.house.sources import ROOT

SITE_BYTES_MAX: Final = 90_000_000
"""Bytes of files in site-packages, without pip."""
TIMEOUT_S: Final = 600
_EXTRAS: Final = "certificates,tables"
_SBOM_TOOL: Final = "cyclonedx-bom>=7"
_BUILT_AT: Final = 1_600_000_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.installs", description=__doc__)
    parser.add_argument("--sbom", type=Path, metavar="FILE", help="keep the list of what was installed in this file")
    kept: Path | None = parser.parse_args().sbom
    with tempfile.TemporaryDirectory(prefix="installs-") as directory:
        place = Path(directory)
        wheel = check_builds(place)
        environment = Environment(place / "base")
        environment.install(str(wheel))
        size = environment.site_bytes()
        assert size < SITE_BYTES_MAX, f"site-packages has {size} bytes; the most allowed is {SITE_BYTES_MAX}"
        check_broker(environment, place)
        environment.install(f"{wheel}[{_EXTRAS}]")
        check_extras(environment, place)
        listed = check_sbom(environment, place, kept)
    print(f"two builds are equal; the wheel serves from {size / 1e6:.1f} MB; {listed} distributions with all extras")


class Environment:
    """A virtual environment with pip and nothing else."""

    def __init__(self, place: Path) -> None:
        venv.create(place, with_pip=True)
        self.python = place / "bin" / "python"
        self._site = next(place.glob("lib/python*/site-packages"))
        self._initially = {path.name for path in self._site.iterdir()}

    def install(self, *what: str) -> None:
        """Install packages, and check that they have what they require."""
        run(str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)
        run(str(self.python), "-m", "pip", "check")

    def run(self, *words: str, given: str = "") -> str:
        """Run a program of this environment; return its output."""
        return run(str(self.python.with_name(words[0])), *words[1:], given=given)

    def site_bytes(self) -> int:
        """Return the bytes of all files that were installed."""
        installed = (path for path in self._site.iterdir() if path.name not in self._initially)
        files = (each for path in installed for each in ([path] if path.is_file() else path.rglob("*")))
        return sum(each.stat().st_size for each in files if each.is_file())


def check_builds(place: Path) -> Path:
    """Return a wheel that is the same from two copies of the checkout."""
    built: list[Path] = []
    for name in ("a", "another"):
        copy = place / name
        copy_checkout(copy)
        for path in copy.rglob("*"):
            os.utime(path, (len(built), len(built)), follow_symlinks=False)
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", f"{copy}.wheel", str(copy),
            SOURCE_DATE_EPOCH=str(_BUILT_AT))  # fmt: skip
        (wheel,) = Path(f"{copy}.wheel").glob("pqbroker-*.whl")
        built.append(wheel)
        shutil.rmtree(copy)
    sums = {hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in built}
    assert len(sums) == 1, "two builds of the same checkout differ"
    return built[0]


def check_broker(environment: Environment, place: Path) -> None:
    """See a broker of the wheel alone serve: records, HTTP, and a stop that ends with 0."""
    assert environment.run("pqbroker", "--version").startswith("pqbroker ")
    with serving(environment, place / "data") as addresses:
        broker = ("--broker", addresses["kafka"])
        environment.run("pqbroker", "produce", "t", *broker, given="one\ntwo\n")
        assert environment.run("pqbroker", "consume", "t", *broker) == "one\ntwo\n"
        assert json.loads(environment.run("pqbroker", "cluster", "health", "--json", *broker))["status"] == "ok"


def check_extras(environment: Environment, place: Path) -> None:
    """See what the extras are for: SQL, and certificates."""
    with serving(environment, place / "data") as addresses:
        query = "SELECT count(*) AS n FROM t"
        found = environment.run("pqbroker", "sql", query, "--json", "--http", addresses["http"])
        assert json.loads(found) == {"n": 2}
    environment.run("pqbroker", "certificate", "--for", "broker.example", "-d", str(place / "certificates"))


def check_sbom(environment: Environment, place: Path, kept: Path | None) -> int:
    """List what is installed, as CycloneDX; return how many distributions that are."""
    tool = Environment(place / "tool")
    tool.install(_SBOM_TOOL)
    written = place / "sbom.json"
    tool.run(
        "cyclonedx-py", "environment", str(environment.python), "--pyproject", str(ROOT / "pyproject.toml"),
        "--output-reproducible", "--validate", "--of", "JSON", "-o", str(written),
    )  # fmt: skip
    document = json.loads(written.read_text(encoding="utf-8"))
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == "pqbroker"
    listed = {component["name"].lower().replace("_", "-") for component in document["components"]}
    installed = json.loads(environment.run("python", "-m", "pip", "list", "--format", "json"))
    names = {one["name"].lower().replace("_", "-") for one in installed} - {"pqbroker"}
    assert names <= listed, f"the list lacks {names - listed}"
    if kept is not None:
        shutil.copyfile(written, kept)
    return len(listed)


@contextmanager
def serving(environment: Environment, data: Path) -> Iterator[dict[str, str]]:
    """A broker of an environment, and its addresses."""
    addresses = ("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
    command = [str(environment.python.with_name("pqbroker")), "serve", *addresses]
    with subprocess.Popen([*command, "--data", str(data)], stdout=subprocess.PIPE, text=True, env=_bare()) as broker:
        assert broker.stdout is not None
        try:
            word, *fields = broker.stdout.readline().split()
            assert word == "ready", "the broker did not start"
            yield dict(each.split("=", 1) for each in fields)
        finally:
            broker.send_signal(signal.SIGTERM)
    assert broker.returncode == 0, f"the broker ended with {broker.returncode}"


def run(*command: str, given: str = "", **environment: str) -> str:
    """Run a program to its end; return its output, SystemExit with its errors where it fails."""
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, env=_bare() | environment
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _bare() -> dict[str, str]:
    """Return the environment without what would bring the checkout or settings of ours into it."""
    return {name: text for name, text in os.environ.items() if not name.startswith(("PQBROKER_", "PYTHON"))}


if __name__ == "__main__":
    main()

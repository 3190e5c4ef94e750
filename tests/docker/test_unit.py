"""docker/pqbroker.service: systemd knows every line of it, and it runs the broker as docs/operate.md says."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from pqbroker.broker.node.serve import add_serve
from tests.house.sources import ROOT

UNIT = ROOT / "docker" / "pqbroker.service"
TOOL = "systemd-analyze"


def verified(text: str, directory: Path) -> str:
    """Return the complaints of systemd about a unit, in which a program that exists here has the broker's place."""
    unit = directory / UNIT.name
    unit.write_text(text.replace("/opt/pqbroker/bin/pqbroker", "/bin/sh"), encoding="utf-8")
    done = subprocess.run([TOOL, "verify", "--man=no", str(unit)], capture_output=True, text=True)
    return done.stderr


@pytest.mark.skipif(shutil.which(TOOL) is None, reason=f"{TOOL} is not installed")
def test_systemd_knows_every_line(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    assert verified(text, tmp_path) == ""
    assert "Unknown key" in verified(text.replace("MemoryMax=", "MemoryMost="), tmp_path)


def test_the_service_is_a_command_of_ours_that_ends_within_its_time() -> None:
    import argparse

    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/pqbroker")
    parser = argparse.ArgumentParser()
    add_serve(parser.add_subparsers())
    assert parser.parse_args(words).data == f"/var/lib/{service['StateDirectory']}"
    assert int(service["TimeoutStopSec"]) >= 15

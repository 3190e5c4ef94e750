"""`./run` in a fresh clone: it sets up what is missing, once, and then only runs."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.house.sources import ROOT

pytestmark = pytest.mark.timeout(900)  # packages are installed, beside whatever else the machine does

TOOLS = ("cat", "cmp", "dirname", "rm", "sh")


def _run(clone: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(clone / "run"), *arguments]
    return subprocess.run(command, cwd=clone.parent, env=environment, capture_output=True, text=True)


def _bare(directory: Path, **scripts: str) -> dict[str, str]:
    """A PATH with the few tools that the script needs, and scripts of our own."""
    for tool in TOOLS:
        path = subprocess.run(["sh", "-c", f"command -v {tool}"], capture_output=True, text=True, check=True).stdout
        (directory / tool).symlink_to(path.strip())
    for name, text in scripts.items():
        script = directory / name.replace("_", ".")
        script.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        script.chmod(0o755)
    return {"PATH": str(directory)}


def test_a_second_run_sets_nothing_up(clone: Path, environment: dict[str, str]) -> None:
    again = _run(clone, environment, "--version")
    assert (again.returncode, again.stderr) == (0, "")


def test_the_script_itself_takes_no_time(clone: Path, environment: dict[str, str]) -> None:
    """It starts none but the smallest programs, and of these few."""
    script = f". {clone}/run; set_up {clone} installed"
    done = subprocess.run(["sh", "-xc", script], env=environment, check=True, capture_output=True, text=True)
    commands = [line.lstrip("+ ").split()[0] for line in done.stderr.splitlines() if line.startswith("+")]
    assert commands
    assert len([command for command in commands if command in TOOLS]) <= 5, done.stderr
    assert not [command for command in commands if command.endswith(("python", "python3", "pip"))], done.stderr


def test_without_arguments_it_serves(clone: Path, environment: dict[str, str]) -> None:
    served = _run(clone, {**environment, "PQBROKER_NODE_ID": "none"})
    assert served.returncode == 2
    assert "PQBROKER_NODE_ID: node.id is 'none'" in served.stderr


def test_the_package_is_installed_anew_when_its_settings_changed(clone: Path, environment: dict[str, str]) -> None:
    with (clone / "pyproject.toml").open("a", encoding="utf-8") as project:
        project.write("# changed\n")
    changed = _run(clone, environment, "--version")
    assert changed.returncode == 0
    assert "installing pqbroker" in changed.stderr
    assert _run(clone, environment, "--version").stderr == ""


def test_without_a_python_that_is_new_enough_it_says_so(tmp_path: Path) -> None:
    environment = _bare(tmp_path, python3="exit 1")
    found = subprocess.run(["sh", "-c", f". {ROOT}/run; find_python"], env=environment, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("pqbroker needs Python 3.11 or newer")


@pytest.mark.parametrize("newer", ["12", "13", "14"])
def test_the_first_python_that_is_new_enough_is_taken(tmp_path: Path, newer: str) -> None:
    environment = _bare(tmp_path, python3="exit 1", **{f"python3_{newer}": "exit 0"}, python3_11="exit 0")
    found = subprocess.run(["sh", "-c", f". {ROOT}/run; find_python"], env=environment, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, f"python3.{newer}\n")


@pytest.mark.parametrize("name", ["run", "test", ".ci/run", "tests/support/fetch_jars.sh"])
def test_the_scripts_are_executable_and_plain_sh(name: str) -> None:
    script = ROOT / name
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").startswith("#!/bin/sh\n")
    assert subprocess.run(["sh", "-n", str(script)]).returncode == 0


@pytest.mark.parametrize(
    ("said", "lines"),
    [("WARNING: Retrying after NewConnectionError\\nERROR: No match", 1), ("ERROR: one\\nERROR: two", 2)],
)
def test_a_broken_network_is_named_in_a_line_and_other_failures_as_pip_says(
    tmp_path: Path, said: str, lines: int
) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\nprintf '{said}\\n' >&2\nexit 1\n", encoding="utf-8")
    python.chmod(0o755)
    (tmp_path / "pyproject.toml").touch()
    script = f"set -eu; . {ROOT}/run; set_up {tmp_path} installed"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    _, *told = done.stderr.splitlines()
    assert (done.returncode, len(told)) == (1, lines), done.stderr
    assert lines > 1 or told[0].startswith("cannot install pqbroker: the package index does not answer;")
    assert not (tmp_path / ".venv" / "installed").exists()

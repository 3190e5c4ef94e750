"""What `pip install .` puts into site-packages: one package, with everything behind its links."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.house.sources import product

pytestmark = pytest.mark.timeout(900)  # packages are installed, beside whatever else the machine does


@pytest.fixture(scope="module")
def wheel(clone: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    python = str(clone / ".venv" / "bin" / "python")
    command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), str(clone)]
    built = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return next(directory.glob("pqbroker-*.whl"))


def test_the_wheel_holds_every_module_and_nothing_of_the_tests(wheel: Path) -> None:
    modules = {source.module.replace(".", "/") + ("/__init__" * source.is_package) + ".py" for source in product()}
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in inside if name.endswith(".py")} == modules
    assert "pqbroker/py.typed" in inside


def test_the_wheel_runs_as_a_module(wheel: Path, clone: Path, environment: dict[str, str], tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    command = [str(clone / ".venv" / "bin" / "python"), "-m", "pqbroker", "--version"]
    run = subprocess.run(command, cwd=tmp_path, env={**environment, "PYTHONPATH": str(tmp_path)}, capture_output=True)
    assert (run.returncode, run.stdout) == (0, b"pqbroker 0.1.0\n")


def test_the_licence_is_in_the_wheel(wheel: Path) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in zipfile.ZipFile(wheel).namelist())

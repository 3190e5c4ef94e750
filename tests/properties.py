"""Property tests, models and stepped cases at full depth (`./test` has a part): python -m tests.properties"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.depth import FULL

ROOT: Final = Path(__file__).resolve().parents[1]
DEEP: Final = ("from hypothesis ", "from tests.support.depth ")
"""A file of tests that imports one of these has such cases."""


def main() -> None:
    command = [sys.executable, "-m", "pytest", "-m", "not alone", f"--hypothesis-profile={FULL}", *deep_files()]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


def deep_files() -> list[str]:
    """Files of tests, from the root."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [file.relative_to(ROOT).as_posix() for file in files if _is_deep(file)]


def _is_deep(file: Path) -> bool:
    return any(line.startswith(DEEP) for line in file.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()

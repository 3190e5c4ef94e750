"""The site of the documents is built without a warning: every link and every page of its menu is there."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    first = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert 'href="cli.html"' in first
    assert "](" not in (tmp_path / "site" / "operate.html").read_text(encoding="utf-8")

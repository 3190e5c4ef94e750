"""Apply each listed mutation to a scratch copy and see its tests fail: python -m tests.mutations [NAME…]"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutations.listing import ROOT, Mutation, mutations
from tests.support.depth import FULL

COPIED = (
    "broker", "cli", "conf", "doctor", "fixture", "http_client", "pq", "protocol", "registry", "security", "src",
    "storage", "tables", "tests", "pyproject.toml",
)  # fmt: skip
TIMEOUT_S = 300
CAUGHT = 1
"""pytest's exit status when tests ran and some failed; any other one but 0 says that none could."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, or those that begin so")
    wanted = tuple(parser.parse_args().names) or ("",)
    missed = 0
    chosen = [mutation for mutation in mutations() if mutation.name.startswith(wanted)]
    with tempfile.TemporaryDirectory(prefix="pqbroker-mutations-") as scratch:
        for mutation in chosen:
            started = time.monotonic()
            verdict = _try(mutation, Path(scratch) / mutation.name)
            missed += not verdict.startswith("caught")
            print(f"{mutation.name:36} {time.monotonic() - started:5.1f} s  {verdict}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} mutations caught")
    sys.exit(missed > 0)


def _try(mutation: Mutation, copy: Path) -> str:
    """Whether the tests notice: "caught by TEST", or what happened instead."""
    copy.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True)  # what is compiled stays so: times are kept
        else:
            shutil.copy(ROOT / name, copy / name)
    target = copy / mutation.file
    target.write_text(mutation.applied(target.read_text(encoding="utf-8")), encoding="utf-8")
    options = ["-x", "-p", "no:cacheprovider", f"--hypothesis-profile={FULL}"]
    command = [sys.executable, "-m", "pytest", *options, *mutation.tests]
    # CI: hypothesis then draws the same examples every time, and none of them is too slow.
    environment = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}", "CI": "1"}
    try:
        ran = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"caught: the tests do not end within {TIMEOUT_S} s"
    finally:
        shutil.rmtree(copy)
    if ran.returncode == CAUGHT:
        return "caught by " + next(line.split()[1] for line in ran.stdout.splitlines() if line.startswith("FAILED "))
    return "MISSED" if ran.returncode == 0 else f"the tests do not run:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"


if __name__ == "__main__":
    main()

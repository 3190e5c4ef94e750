"""What takes too long for `./test`: `./test long` runs all, one after the other; `./test long NAME…` only these.

The last line that each prints goes into the table of docs/simulation.md, with the time it took. The exit status is 1 if
one of them fails.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "simulation.md"
RUNS: Final[Mapping[str, str]] = {
    "stories": "tests.simulation --seeds 10000",
    "properties": "tests.properties",
    "crash-points": "tests.simulation --crash-points 5000",
    "power": "tests.faults.power --cuts 1000",
    "flips": "tests.faults.flips --count 1000",
    "index-flips": "tests.faults.index_flips --count 1000",
    "kills": "tests.faults.kills --kills 500",
    "node-kills": "tests.faults.node_kills --kills 100",
    "sorted-kills": "tests.faults.sorted_kills --kills 100",
    "cleaning-kills": "tests.faults.cleaning_kills --kills 100",
    "transactional-copies": "tests.faults.transactional_copies --minutes 10",
    "installs": "tests.installs",
    "foreign-suites": "tests.compat.foreign_suites",
    "foreign-groups": "tests.compat.foreign_groups",
    "foreign-logins": "tests.compat.foreign_logins",
    "connect-sources": "tests.faults.connect_sources --kills 10",
    "connect-by-password": "tests.faults.connect_sources --kills 4 --mechanism SCRAM-SHA-512",
    "connect-by-token": "tests.faults.connect_sources --kills 4 --mechanism OAUTHBEARER",
    "log-histories": "tests.faults.log_histories --minutes 60",
    "transfers": "tests.faults.transfers --kills 100",
    "joined-kills": "tests.faults.joined_kills --kills 100",
    "histories": "tests.faults.histories --seconds 3600",
    "full-disk": "tests.faults.full_disk --rounds 10",
    "full-disk-ext4": "tests.faults.full_disk --kind ext4 --rounds 10",
    "backups": "tests.faults.backups --times 50",
    "churn": "tests.faults.churn --seconds 600",
    "consumer-churn": "tests.faults.consumer_churn --seconds 120",
    "migrating-churn": "tests.faults.consumer_churn --migrates --seconds 120",
    "grammar": "tests.grammar --requests 1000000",
    "login-frames": "tests.broker.kafka.net.login_fuzz 1000000",
    "lists": "tests.grammar --lists",
    "real-registry": "tests.compat.real_registry",
    "spark-kills": "tests.spark.kills --times 20",
    "kafka-comparison": "tests.kafka_comparison",
    "bearer-logins": "tests.kafka_comparison.bearer_logins",
    "cleaned-logs": "tests.kafka_comparison.cleaned_logs --drawn 200",
    "transactional-walks": "tests.kafka_comparison.transactional_walks --walks 1000",
    "mutations": "tests.mutations",
}
"""By name: a module and its arguments."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="./test long", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RUNS)}; without one: all")
    names: Sequence[str] = parser.parse_args().names or list(RUNS)
    if unknown := [name for name in names if name not in RUNS]:
        parser.error(f"{unknown[0]!r} is no long run: give some of {', '.join(RUNS)}")
    sys.exit(1 if sum(not _run(RUNS[name]) for name in names) else 0)


def _run(command: str) -> bool:
    """Return True if it went well."""
    print(f"== python -m {command}", flush=True)
    started, last = time.monotonic(), ""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", *command.split()], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    minutes = (time.monotonic() - started) / 60
    if running.returncode:
        print(f"python -m {command} failed with status {running.returncode}", file=sys.stderr)
        return False
    PAGE.write_text(noted(PAGE.read_text(encoding="utf-8"), command, f"{last} ({minutes:.0f} min)"), encoding="utf-8")
    return True


def noted(page: str, command: str, result: str) -> str:
    """The page with the result of a run in its table, in the place of the one before."""
    lines = page.rstrip("\n").split("\n")
    row = f"| `python -m {command}` | {result.replace('|', '/')} |"
    module = f"| `python -m {' '.join(command.split()[:2])}"
    places = [number for number, line in enumerate(lines) if line.startswith((f"{module} ", f"{module}`"))]
    if places:
        lines[places[0]] = row
    else:
        lines.append(row)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

"""This broker beside Apache Kafka, or beside an earlier commit of its own, on one machine, in interleaved rounds.

    python -m tests.benchmarks                              beside Apache Kafka, five rounds
    python -m tests.benchmarks --against COMMIT --short     beside an earlier commit, five short rounds
"""

import argparse
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks import consuming, hot_commits, producing, report, system_calls
from tests.benchmarks.figures import EARLIER, KAFKA, OURS, Results, Run
from tests.benchmarks.marks import MARKS, no_worse, verdicts
from tests.benchmarks.meter import Memory, memory
from tests.benchmarks.suite import WORKLOADS, run_rounds, warm
from tests.benchmarks.systems import Started, apache_kafka, earlier_broker, our_broker
from tests.benchmarks.workload import FULL, QUICK, SHORT, Scale, Workload

_DIRECTORY = Path(__file__).resolve().parents[2] / ".cache" / "benchmarks"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 0 when all workloads ran, whether or not the marks were met."""
    options = _parser().parse_args(arguments)
    workloads = _chosen(options.workload)
    options.directory.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=options.directory))
    try:
        _benchmark(options, workloads, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


def _benchmark(options: argparse.Namespace, workloads: Sequence[Workload], directory: Path) -> None:
    scale = QUICK if options.quick else SHORT if options.short else FULL
    rounds = options.rounds or (1 if options.quick else 5)
    with ExitStack() as stack:
        started = _start(options, stack, directory, scale)
        _tell_conditions(started, workloads, rounds, directory)
        systems = [system for process in started.values() for system in process.systems]
        runs = list(run_rounds(workloads, systems, scale, rounds, _tell_run))
        memories = {name: memory(process.systems[0].pid) for name, process in started.items()}
        calls = {name: system_calls.measure(started[name]) for name in (OURS, EARLIER) if name in started}
    _tell_results(Results(runs), memories, markdown=options.markdown)
    if not options.kafka_only:
        columns = hot_commits.compare(options.against, 1) if options.against else hot_commits.alone()
        print("\nOne process, hot: processor time and calls (python -m tests.benchmarks.hot)\n")
        print("\n".join(hot_commits.lines(columns)))
    for name, counted in calls.items():
        print(f"\nSystem calls of a Produce alone, {name}\n")
        print("\n".join(system_calls.lines(counted)) if counted else "not counted: there is no strace")


def _start(options: argparse.Namespace, stack: ExitStack, directory: Path, scale: Scale) -> dict[str, Started]:
    """The brokers, warm; ours first in order and last in time, as a JVM that starts takes all cores for seconds."""
    started = {}
    if options.against:
        started[EARLIER] = _warmed(stack.enter_context(earlier_broker(directory, options.against)), scale)
    elif not options.ours_only:
        started[KAFKA] = _warmed(stack.enter_context(apache_kafka(directory)), scale)
    if not options.kafka_only:
        started = {OURS: _warmed(stack.enter_context(our_broker(directory)), scale), **started}
    return started


def _warmed(process: Started, scale: Scale) -> Started:
    for system in process.systems:
        warm(system, scale)
    return process


def _tell_conditions(
    started: dict[str, Started], workloads: Sequence[Workload], rounds: int, directory: Path
) -> None:
    print(f"machine: {os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}")
    print(f"data:    {directory}; every topic is new and deleted after its run")
    print(f"rounds:  {rounds}; a ratio is that of medians; MB and GB are 10^6 and 10^9 bytes of values")
    for name, process in started.items():
        print(f"\n{name}:")
        print("\n".join(f"  {line}" for line in process.configuration))
    print("\nclients:")
    print(f"  librdkafka producer: {_settings(producing.LIBRDKAFKA)}")
    print(f"  librdkafka consumer: {_settings(consuming.LIBRDKAFKA)}")
    print("\nworkloads:")
    print("\n".join(f"  {workload.name:<22}{workload.says}" for workload in workloads))
    print(flush=True)


def _tell_run(number: int, run: Run) -> None:
    print(report.run_line(number, run), flush=True)


def _tell_results(results: Results, memories: dict[str, Memory], *, markdown: bool) -> None:
    asked = no_worse(results) if EARLIER in results.systems() else MARKS
    header, rows = report.every_figure(results)
    print(f"\nEvery figure\n\n{report.text_table(header, rows)}")
    table = report.markdown_table if markdown else report.text_table
    tables = {
        "Medians": report.summary(results),
        "Memory": report.memory(memories, results),
        "Marks": report.marks(verdicts(results, asked)),
    }
    for title, (header, rows) in tables.items():
        print(f"\n{'### ' if markdown else ''}{title}\n\n{table(header, rows)}")


def _settings(settings: dict[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _chosen(names: Sequence[str] | None) -> list[Workload]:
    return [workload for workload in WORKLOADS if not names or workload.name in names]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument("--quick", action="store_true", help="a little of everything; the figures mean nothing")
    scale.add_argument("--short", action="store_true", help="a few seconds a run; look at five rounds")
    parser.add_argument("--rounds", type=int, help="how often each workload runs on each system (5; with --quick 1)")
    parser.add_argument(
        "--workload", nargs="+", metavar="NAME", choices=[each.name for each in WORKLOADS],
        help=f"only these: {', '.join(each.name for each in WORKLOADS)}",
    )  # fmt: skip
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--ours-only", action="store_true", help="without Apache Kafka")
    only.add_argument("--kafka-only", action="store_true", help="Apache Kafka alone")
    only.add_argument("--against", metavar="COMMIT", help="beside the broker of an earlier commit instead of Kafka")
    parser.add_argument("--markdown", action="store_true", help="tables as Markdown, for docs/performance.md")
    parser.add_argument("--directory", type=Path, default=_DIRECTORY, help="where both keep their data (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

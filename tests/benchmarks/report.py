"""The benchmark's tables as text or Markdown: every figure, medians, ratios, memory, marks. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from tests.benchmarks.figures import EARLIER, KAFKA, KAFKA_FLUSH, LOOP_LAG, OURS, Results, Run
from tests.benchmarks.marks import Verdict
from tests.benchmarks.meter import Memory

Rows = Sequence[Sequence[str]]


def text_table(header: Sequence[str], rows: Rows) -> str:
    """Columns as wide as they need; the first is aligned left, the others right."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(_aligned(line, widths) for line in lines)


def markdown_table(header: Sequence[str], rows: Rows) -> str:
    """The same for docs/performance.md."""
    rule = ["---"] + ["--:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(header), rule, *[list(row) for row in rows]])


def number(value: float | None) -> str:
    """Three significant digits, a dash for nothing; large numbers whole."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def run_line(number_of_round: int, run: Run) -> str:
    """One run as it happens."""
    figures = "  ".join(f"{number(value)} {name}" for name, value in run.figures.items())
    return f"round {number_of_round}  {run.workload:<22}{run.system:<24}{figures}"


def summary(results: Results) -> tuple[list[str], list[list[str]]]:
    """A row per workload and figure: each system's median, and ours over each of the others.

    Not the loop's lag, which the broker tells as the worst since its start: `memory` has it.
    """
    systems = results.systems()
    against = [system for system in (EARLIER, KAFKA_FLUSH, KAFKA) if OURS in systems and system in systems]
    header = ["workload", "figure", *systems, *[f"ratio to {system}" for system in against]]
    rows = []
    for workload in results.workloads():
        for figure in [name for name in results.figures(workload) if name != LOOP_LAG]:
            medians = [number(results.median(workload, system, figure)) for system in systems]
            ratios = [number(results.ratio(workload, figure, system)) for system in against]
            rows.append([workload, figure, *medians, *ratios])
    return header, rows


def every_figure(results: Results) -> tuple[list[str], list[list[str]]]:
    """A row per workload, figure and system with all values, in the order run."""
    rows = []
    for workload in results.workloads():
        for figure in results.figures(workload):
            for system in results.systems():
                values = results.values(workload, system, figure)
                if values:
                    rows.append([workload, figure, system, " ".join(number(value) for value in values)])
    return ["workload", "figure", "system", "runs"], rows


def marks(verdicts: Iterable[Verdict]) -> tuple[list[str], list[list[str]]]:
    """A row per mark: what is asked, what was reached, and the verdict."""
    rows = [
        [each.mark.workload, each.mark.figure, each.mark.asks(), number(each.ratio), each.word] for each in verdicts
    ]
    return ["workload", "figure", "asked", "reached", "verdict"], rows


def memory(by_process: Mapping[str, Memory], results: Results) -> tuple[list[str], list[list[str]]]:
    """A row per broker process: resident memory at the end and at most, and the loop's worst lag of all runs."""
    rows = []
    for name, used in by_process.items():
        lags = [lag for workload in results.workloads() for lag in results.values(workload, name, LOOP_LAG)]
        rows.append([name, number(used.now_mib), number(used.peak_mib), number(max(lags, default=None))])
    return ["process", "resident MiB", "at most MiB", LOOP_LAG], rows


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [line[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
    return "  ".join(cells).rstrip()

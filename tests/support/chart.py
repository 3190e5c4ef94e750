"""Draws docs/speed.svg from figures of docs/performance.md: `python -m tests.support.chart`. A test compares them."""

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[2] / "docs"
FIGURES, CHART = DOCS / "performance.md", DOCS / "speed.svg"
SHOWN = {
    ("produce-librdkafka-1", "MB/s"): "write, one producer, large batches (MB/s)",
    ("produce-librdkafka-6", "MB/s"): "write, one producer, large batches to six partitions (MB/s)",
    ("consume-librdkafka", "MB/s"): "read, one consumer (MB/s)",
    ("small-8", "requests/s"): "small requests, eight connections (per second)",
}
"""Workloads where more is better, by the names of the page."""
SYSTEMS = (("pqbroker", "#2563eb"), ("Kafka with a sync for each request", "#d97706"), ("Kafka", "#94a3b8"))
_WIDTH, _LABEL, _BAR, _GAP = 720, 16, 12, 14
_BARS_FROM, _BARS_TO = 8, 640


class Row(NamedTuple):
    """One workload: a figure for each of SYSTEMS, None where there is none."""

    title: str
    figures: tuple[float | None, ...]


def read_rows(page: str) -> list[Row]:
    """The rows of the page's first table that are shown."""
    rows: list[Row] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        title = SHOWN.get((cells[0], cells[1])) if len(cells) == 7 else None
        if title is not None:
            rows.append(Row(title, tuple(_number(cell) for cell in cells[2:5])))
    return rows


def draw(rows: list[Row]) -> str:
    """Bars on a scale of their own for each workload. Text and background suit light and dark pages."""
    parts: list[str] = []
    top = _LABEL + 6
    for at, (name, colour) in enumerate(SYSTEMS):
        x = _BARS_FROM + at * 215
        parts.append(f'<rect x="{x}" y="6" width="{_BAR}" height="{_BAR}" fill="{colour}"/>')
        parts.append(f'<text x="{x + _BAR + 5}" y="16">{escape(name)}</text>')
    for row in rows:
        top += _GAP
        parts.append(f'<text x="{_BARS_FROM}" y="{top}" font-weight="bold">{escape(row.title)}</text>')
        top += 5
        most = max(figure for figure in row.figures if figure is not None)
        for figure, (_, colour) in zip(row.figures, SYSTEMS, strict=True):
            if figure is None:
                continue
            width = round((_BARS_TO - _BARS_FROM) * figure / most)
            parts.append(f'<rect x="{_BARS_FROM}" y="{top}" width="{width}" height="{_BAR}" fill="{colour}"/>')
            parts.append(f'<text x="{_BARS_FROM + width + 5}" y="{top + 10}">{_written(figure)}</text>')
            top += _BAR + 2
        top += 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + 4}" width="{_WIDTH}" role="img" '
        'font-family="sans-serif" font-size="11" fill="#0f172a">'
    )
    title = "<title>Speed of pqbroker and Apache Kafka on two cores; longer bars are better</title>"
    back = '<rect width="100%" height="100%" fill="#f8fafc" rx="6"/>'
    return "\n".join([head, title, back, *parts, "</svg>"]) + "\n"


def chart() -> str:
    """The whole picture."""
    return draw(read_rows(FIGURES.read_text(encoding="utf-8")))


def _number(cell: str) -> float | None:
    digits = re.sub(r"\s", "", cell)
    return None if digits == "-" else float(digits)


def _written(figure: float) -> str:
    return f"{figure:,.0f}".replace(",", " ")


if __name__ == "__main__":
    CHART.write_text(chart(), encoding="utf-8")

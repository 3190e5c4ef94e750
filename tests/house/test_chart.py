"""The chart in README shows the figures of docs/performance.md."""

from xml.etree import ElementTree

from tests.support.chart import CHART, FIGURES, SHOWN, Row, chart, draw, read_rows


def test_the_chart_is_drawn_from_the_page() -> None:
    assert CHART.read_text(encoding="utf-8") == chart(), "run: python -m tests.support.chart"


def test_every_workload_that_is_shown_stands_in_the_page() -> None:
    rows = read_rows(FIGURES.read_text(encoding="utf-8"))
    assert [row.title for row in rows] == list(SHOWN.values())


def test_a_bar_is_as_long_as_its_figure_says() -> None:
    picture = ElementTree.fromstring(draw([Row("<speed>", (50, None, 100))]))
    bars = [int(each.attrib["width"]) for each in picture if each.attrib.get("y") == "41"]
    bars += [int(each.attrib["width"]) for each in picture if each.attrib.get("y") == "55"]
    assert bars == [316, 632]

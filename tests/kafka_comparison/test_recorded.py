"""Our answers beside those that Apache Kafka gave in the last comparison, in the latest version of each API."""

from collections.abc import Iterator

import pytest

from pqbroker.testing import broker
from tests.kafka_comparison import page, recorded
from tests.kafka_comparison.differences import Difference, Listed, compared
from tests.kafka_comparison.run import OURS, chosen, covering, made_side, play
from tests.kafka_comparison.side import Side

CASES = [case for case in chosen() if recorded.is_recorded(case)]
APIS = sorted({case.api.name for case in CASES})
KAFKAS = recorded.read()


@pytest.fixture(scope="module")
def side() -> Iterator[Side]:
    """Our broker."""
    with broker(settings=OURS) as running:
        yield made_side(running.kafka)


@pytest.mark.parametrize("api", APIS)
def test_our_answers_are_kafkas_but_for_what_is_listed(api: str, side: Side) -> None:
    unlisted = []
    for case in CASES:
        if case.api.name != api:
            continue
        for label, ours in play(case, side):
            theirs = KAFKAS.get((case.name, label))
            if theirs is not None:
                shape = f"{case.shape}/{label}" if label else case.shape
                unlisted += [
                    str(each)
                    for each in compared(api, case.version, shape, ours, theirs)
                    if covering(each) is None
                ]
    assert unlisted == []


def test_every_api_has_answers_of_kafkas() -> None:
    assert {name.split("-")[0] for name, _ in KAFKAS} == set(APIS)


def test_the_page_is_what_its_script_writes() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page()


def test_a_field_of_an_element_that_one_side_lacks_is_one_difference() -> None:
    ours = {"topics[].count": "1", "topics[t]": "present", "topics[t].error_code": "'NONE'"}
    assert [each.field for each in compared("A", 0, "s", ours, {"topics[].count": "0"})] == ["topics[t]"]


def test_what_follows_from_another_error_is_one_difference() -> None:
    ours = {"topics[t].error_code": "'NONE'", "topics[t].offset": "5", "topics[u].offset": "1"}
    theirs = {"topics[t].error_code": "'X'", "topics[t].offset": "-1", "topics[u].offset": "2"}
    assert [each.field for each in compared("A", 0, "s", ours, theirs)] == ["topics[t].error_code", "topics[u].offset"]


@pytest.mark.parametrize(
    ("line", "is_covered"),
    [
        (Listed("A", "0-2", "s", "topics[*].error_code", "*", "*", ""), True),
        (Listed("*", "1", "*", "*", "'NONE'", "'X'", ""), True),
        (Listed("B", "1", "*", "*", "*", "*", ""), False),
        (Listed("A", "2-3", "*", "*", "*", "*", ""), False),
        (Listed("A", "1", "s/*", "*", "*", "*", ""), False),
        (Listed("A", "1", "*", "topics[*]", "*", "*", ""), False),
        (Listed("A", "1", "*", "*", "'X'", "*", ""), False),
        (Listed("A", "1", "*", "*", "*", "'NONE'", ""), False),
    ],
)
def test_a_line_of_the_list_covers_what_it_says(line: Listed, is_covered: bool) -> None:
    assert line.covers(Difference("A", 1, "s", "topics[t].error_code", "'NONE'", "'X'")) == is_covered

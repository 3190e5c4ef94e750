"""The page of rules and their tests is what the tests are marked with, and no rule is without a test."""

import pytest

from tests.support.spec_page import PAGE, Held, heading, held, marks, sections, spec_page

_RULES = {rule for rules in sections().values() for rule in rules}


def test_the_page_is_what_the_tests_are_marked_with() -> None:
    assert PAGE.read_text(encoding="utf-8") == spec_page(), "run: python -m tests.support.spec_page"


def test_every_mark_leads_to_rules_that_are_explained() -> None:
    assert {one.path for one in held() if not one.rules} == set()
    assert {rule for one in held() for rule in one.rules if heading(rule) not in _RULES} == set()


def test_every_rule_has_a_test() -> None:
    assert _RULES - {heading(rule) for one in held() for rule in one.rules} == set()


def test_marks_are_read_from_functions_and_files() -> None:
    text = '''
"""A model that
breaks nothing.

More."""
pytestmark = [pytest.mark.alone, pytest.mark.spec("B.1")]

@pytest.mark.parametrize("number", [1])
@pytest.mark.spec("A.5.10", "H4")
async def test_of_two_one_wins(number: int) -> None: ...

def test_other() -> None: ...
'''
    assert list(marks(text, "pq/test_a.py")) == [
        Held(("B.1",), "A model that breaks nothing.", "pq/test_a.py"),
        Held(("A.5.10", "H4"), "Of two one wins", "pq/test_a.py"),
    ]


@pytest.mark.parametrize(
    ("rule", "title"),
    [("A.5.10", "A.5"), ("H35", "H"), ("J.1", "J"), ("4.18", "4.18"), ("1.4.5", "1.4.5"), ("spark 2", "spark 2")],
)
def test_a_step_is_explained_by_its_rule(rule: str, title: str) -> None:
    assert heading(rule) == title

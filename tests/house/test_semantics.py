"""Every rule that code or the list of tests cites by letter and number stands on docs/semantics.md."""

import re

import pytest

from tests.house.sources import ROOT, product

_PAGE = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
_RULES = frozenset(re.findall(r"^### (.+)$", _PAGE, re.MULTILINE))
_LETTERS = re.compile(r"\b(?:[A-K]\.\d+|[HJ](?=\d+\b))")
_CLIENTS = re.compile(r"\bclients ((?:[\d.]+(?:, | and | to )?)+)")
_NUMBER = re.compile(r"[\d.]+\d")


def cited(text: str) -> set[str]:
    """Rules that a text names: A.5.10 is a step of A.5, H35 a line of H, `clients 4.18` is 4.18."""
    letters = {each.split(".")[0] if each[0] in "HJ" else each for each in _LETTERS.findall(text)}
    return letters | {number for run in _CLIENTS.findall(text) for number in _NUMBER.findall(run)}


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("(A.5.10)", {"A.5"}),
        ("semantics A.7,\nclients 4.18, 4.19).", {"A.7", "4.18", "4.19"}),
        ("H6, H7 and J.1", {"H", "J"}),
        ("clients 4.30 to 4.34", {"4.30", "4.34"}),
        ("HTTP/1.1 and 4.3 GB", set()),
    ],
)
def test_citations_are_found(text: str, rules: set[str]) -> None:
    assert cited(text) == rules


def test_every_rule_that_the_code_cites_is_explained() -> None:
    missing = {source.path: cited(source.text) - _RULES for source in product()}
    assert {path: rules for path, rules in missing.items() if rules} == {}

"""Help texts, metric HELP and descriptions of settings start with a noun or a verb and make sense alone."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from pqbroker.broker.ground.metrics import FAMILIES
from pqbroker.cli.help_text import shown
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import declarations
from pqbroker.conf.sorted_attributes import SortedAttributes
from pqbroker.conf.topic import TopicConfig
from tests.house.sources import product
from tests.support.cli_page import commands

OURS = ("pq.", "pqbroker.")
"""How settings begin that are not Kafka's, whose texts often say only why they have no effect."""
NO_START = re.compile(
    r"(and|as|at|both|by|for|from|how|if|in|it|its|of|on|or|so|such|that|their|there|these|they|this|those|to|what|"
    r"whatever|when|where|whether|which|who|whoever|whose|why|with)\b",
    re.IGNORECASE,
)
"""Words that begin a clause or lean on a text before."""
PHRASES = re.compile(
    r"\b(is told|are told|told of|who asks|whoever|anew|made again|go(es)? on|lives? on|(is|are) there|to be had|"
    r"so many|for so long|cannot be(?=[,.:;]))\b",
    re.IGNORECASE,
)
"""Phrases of CONTRIBUTING's table."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield texts that a user reads alone, each with its place."""
    for family in FAMILIES:
        yield f"metric {family.name}", family.help
    for settings in (BrokerSettings, TopicConfig):
        for name, declaration in declarations(settings).items():
            if name.startswith(OURS):
                yield f"setting {name}", declaration.doc
    for name, declaration in declarations(SortedAttributes).items():
        yield f"attribute {name}", declaration.doc
    for name, command in commands().items():
        yield f"pqbroker {name}", command.help
        for parameter in shown(command):
            yield f"pqbroker {name} {parameter.name}", parameter.spec.help


TEXTS = list(texts())


def test_every_text_is_read() -> None:
    assert {"attribute", "metric", "setting", "pqbroker"} == {place.split()[0] for place, _ in TEXTS}


def test_a_text_starts_with_a_noun_or_a_verb() -> None:
    assert [f"{place}: {text}" for place, text in TEXTS if NO_START.match(text)] == []


def test_a_text_is_a_sentence() -> None:
    assert [f"{place}: {text}" for place, text in TEXTS if text[:1].islower() or not text.endswith(".")] == []


def test_no_text_has_a_phrase_that_leans_on_another() -> None:
    assert [f"{place}: {text}" for place, text in TEXTS if PHRASES.search(text)] == []


@pytest.mark.parametrize("text", ["Whether it is.", "What is left.", "Of each value."])
def test_a_start_that_says_nothing_is_found(text: str) -> None:
    assert NO_START.match(text)


def test_a_docstring_starts_with_a_noun_or_a_verb() -> None:
    assert [place for place, text in _docstrings() if NO_START.match(text)] == []


def test_a_docstring_has_no_phrase_of_the_table() -> None:
    assert [place for place, text in _docstrings() if PHRASES.search(" ".join(text.split()))] == []


@pytest.mark.parametrize("text", ["A value that cannot be.", "It goes on.", "Who asks\nis told."])
def test_a_phrase_of_the_table_is_found(text: str) -> None:
    assert PHRASES.search(" ".join(text.split()))


def test_a_text_below_an_attribute_is_found() -> None:
    text = 'A = 1\n"""Of each."""\n\nclass B:\n    c: int\n    """Whether."""\n    def d(self):\n        """No."""\n'
    tree = ast.parse(text)
    assert list(_attribute_docstrings(tree)) == [(2, "Of each."), (6, "Whether.")]


def _docstrings() -> Iterator[tuple[str, str]]:
    """Yield each docstring, and each text below an attribute, behind its place."""
    for source in product():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                yield f"{source.path} {getattr(node, 'name', '')}: {text[:80]}", text
        for line, text in _attribute_docstrings(source.tree):
            yield f"{source.path}:{line} {text[:80]}", text


def _attribute_docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines and texts of strings that stand right below an assignment."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for before, text in pairwise(body if isinstance(body, list) else ()):
            is_below = isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(text, ast.Expr)
            if is_below and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str):
                yield text.lineno, text.value.value

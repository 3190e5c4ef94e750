"""How long and deep a function may be (CONTRIBUTING.md). Each test names every place that breaks its rule.

Files, classes and rooms are not counted: counting them made people shave lines instead of finding two subjects."""

import ast
from collections.abc import Callable

from tests.house.sources import Function, product

FUNCTION_LINES_MAX = 50
PARAMETERS_MAX = 6
LEVELS_MAX = 3

OPTIONS_OF_COMMANDS = ("cli/commands/",)
"""A command's parameters are its options."""
ENCODERS = {"protocol/records.py encode_batch", "storage/disk/commits/commit_record.py encode_commit"}
"""Fields of a header."""

_BLOCKS = (ast.AsyncFor, ast.AsyncWith, ast.For, ast.If, ast.Match, ast.Try, ast.While, ast.With)
_SCOPES = (ast.AsyncFunctionDef, ast.ClassDef, ast.FunctionDef, ast.Lambda)


def test_a_function_fits_on_a_screen() -> None:
    assert _above(_of_functions(_lines), FUNCTION_LINES_MAX) == []


def test_a_function_has_few_parameters() -> None:
    found = {
        place: count
        for place, count in _of_functions(_parameters).items()
        if place not in ENCODERS and not place.startswith(OPTIONS_OF_COMMANDS)
    }
    assert _above(found, PARAMETERS_MAX) == []


def test_a_function_has_few_levels() -> None:
    assert _above(_of_functions(_levels), LEVELS_MAX) == []


def test_levels_are_counted_as_they_are_read() -> None:
    text = """
def one():
    if a:
        for b in c:
            with d:
                pass
    elif e:
        def inner():
            while f:
                pass
    elif g:
        if h:
            pass
"""
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert _levels(function) == 3


def _above(found: dict[str, int], most: int) -> list[str]:
    return [f"{place}: {count}" for place, count in found.items() if count > most]


def _of_functions(measure: Callable[[Function], int]) -> dict[str, int]:
    """By path and name; of several of a name in a file the largest."""
    found: dict[str, int] = {}
    for source in product():
        for function in source.functions():
            place = f"{source.path} {function.name}"
            found[place] = max(found.get(place, 0), measure(function))
    return found


def _lines(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def _parameters(function: Function) -> int:
    given = function.args
    named = (*given.posonlyargs, *given.args, *given.kwonlyargs)
    return len(named) + (given.vararg is not None) + (given.kwarg is not None)


def _levels(node: ast.AST) -> int:
    """How deep blocks stand in each other; an `elif` stands beside its `if`, a function within starts at the edge."""
    deepest = 0
    for name, value in ast.iter_fields(node):
        children = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST)]
        is_elif = isinstance(node, ast.If) and name == "orelse" and len(children) == 1
        for child in children:
            if not isinstance(child, _SCOPES):
                is_deeper = isinstance(child, _BLOCKS) and not (is_elif and isinstance(child, ast.If))
                deepest = max(deepest, _levels(child) + is_deeper)
    return deepest

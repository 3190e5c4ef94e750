"""The page of rules and their tests names tests that are there."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "spec.md"


def test_every_rule_of_the_page_has_tests_and_they_are_there() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rules = [row for row in rows if not row.startswith("| rule |")]
    assert rules
    for row in rules:
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", row)
        assert named, row
        for path, name in named:
            assert not name or name in _names(ROOT / "tests" / path), f"{path}::{name}"


@cache
def _names(file: Path) -> set[str]:
    body = ast.parse(file.read_text(encoding="utf-8")).body
    named = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    return named | {node.targets[0].id for node in body if _is_name(node)}  # type: ignore[attr-defined]


def _is_name(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)

"""Writes docs/spec.md from the marks of tests: `python -m tests.support.spec_page`. It reads tests and imports none."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "spec.md"
RULES = ROOT / "docs" / "semantics.md"

_HEAD = """\
# Rules and their tests

For each rule of [semantics](semantics.md) the tests that hold it. The sentence is the name of a test, or the first line
of a file of tests; paths are below `tests/`. [Left out](semantics.md#left-out-and-why) are the rules that do not apply.
The page is written from the marks of the tests (`@pytest.mark.spec("A.5.10", "K.1")`, or `pytestmark` for a whole file)
by `python -m tests.support.spec_page`.
"""


@dataclass(frozen=True)
class Held:
    """What one test, or one file of tests, says that it holds."""

    rules: tuple[str, ...]
    sentence: str
    path: str


def spec_page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def sections() -> dict[str, tuple[str, ...]]:
    """Rules of semantics.md by the section they stand in, in its order."""
    found: dict[str, list[str]] = {}
    for level, title in re.findall(r"^(##|###) (.+)$", RULES.read_text(encoding="utf-8"), re.MULTILINE):
        if level == "##":
            found[title] = []
        else:
            found[list(found)[-1]].append(title)
    return {title: tuple(rules) for title, rules in found.items()}


def held() -> Iterator[Held]:
    """Every mark, file by file."""
    tests = ROOT / "tests"
    for file in sorted(tests.rglob("test_*.py")):
        yield from marks(file.read_text(encoding="utf-8"), file.relative_to(tests).as_posix())


def marks(text: str, path: str) -> Iterator[Held]:
    """The marks of one file of tests."""
    if "mark.spec(" not in text:
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield from _marked(node.value, (ast.get_docstring(tree) or path).partition("\n\n")[0], path)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            sentence = node.name.removeprefix("test_").replace("_", " ")
            for decorator in node.decorator_list:
                yield from _marked(decorator, sentence[:1].upper() + sentence[1:], path)


def heading(rule: str) -> str:
    """The rule of semantics.md that explains one that a test names: A.5 for A.5.10, H for H35, J for J.1."""
    if rule[0] in "HJ":
        return rule[0]
    return ".".join(rule.split(".")[:2]) if rule[0].isupper() else rule


def _marked(value: ast.expr, sentence: str, path: str) -> Iterator[Held]:
    for call in ast.walk(value):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.spec":
            yield Held(tuple(ast.literal_eval(rule) for rule in call.args), " ".join(sentence.split()), path)


def _lines() -> Iterator[str]:
    yield _HEAD.rstrip("\n")
    all_held = list(held())
    for title, rules in sections().items():
        rows = [one for one in all_held if heading(one.rules[0]) in rules]
        if not rows:
            continue
        yield from ("", f"## {title}", "", "| rule | what holds | test |", "|---|---|---|")
        for one in sorted(rows, key=lambda one: (rules.index(heading(one.rules[0])), _numbers(one.rules[0]))):
            links = ", ".join(f"[{rule}](semantics.md#{_anchor(heading(rule))})" for rule in one.rules)
            yield f"| {links} | {one.sentence.replace('|', chr(92) + '|')} | `{one.path}` |"


def _numbers(rule: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", rule)]


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(spec_page(), encoding="utf-8")

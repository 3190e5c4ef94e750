"""No name breaks docs/glossary.md: identifiers, modules, settings, metrics and fields over HTTP.

`EXCEPTIONS` are names that were there before their rule: the list only shrinks.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from pqbroker.broker.ground.metrics import FAMILIES
from pqbroker.broker.web.openapi import openapi
from pqbroker.broker.web.served import ROUTES
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import declarations
from pqbroker.conf.topic import TopicConfig
from tests.house.sources import ROOT, Function, Source, product, sources

EXCEPTIONS = {
    # aliases of one version: the earlier names of a tablet's row sets and of a pool's number
    "/v1/tablets/{tablet} group", "/v1/tablets/{tablet} tables",
    "/v1/tablets/{tablet}/channels/{channel} group", "/v1/tablets/{tablet}/channels/{channel} tables",
    "/v1/tablets/{tablet}/restart group", "/v1/tablets/{tablet}/restart tables",
}  # fmt: skip
DECLARATIONS = "protocol/messages/"
"""Names of Kafka's structs and fields."""
IN_EACH_FILE = {"API", "ROUTES"}
"""Constants that each file of a kind has, as its declaration."""
CONSTANTS_OF_SEVERAL = {
    "ANSWER_BYTES_MAX", "BYTES_MAX", "CHANGES", "COLUMNS", "COMMANDS", "CONNECTIONS_MAX", "DATA", "EARLIEST",
    "ERROR", "FAILED", "FORMAT", "FORMATS", "FROM", "GROUPS", "JSON", "JSON_TYPE", "KEEP", "LATEST", "LINES",
    "OFFSET", "PROGRAM", "RAW", "RECORD", "RECORDS", "ROOT", "STOPPED", "SYSTEM", "TIMESTAMP", "TOPIC",
    "TOPIC_COLUMNS",
}  # fmt: skip
"""Constants with several values, from before the rule."""
NAMES_OF_SEVERAL = {
    "Answer", "Asked", "Batch", "Batches", "Broker", "CellId", "Changes", "Column", "Columns", "Command", "Decode",
    "Effect", "Entry", "Family", "Fault", "Filter", "Group", "Headers", "Inserted", "JsonLines", "Key", "Kind",
    "Last", "Load", "Look", "Loss", "Member", "Message", "Node", "Offsets", "OpenCell", "Operation", "Option",
    "Options", "Pace", "Page", "Parameter", "Partition", "Piece", "Plan", "Position", "Progress", "Query", "Range",
    "Read", "ReadLog", "Reader", "Reading", "Record", "Reshard", "Row", "RowRange", "Run", "Schema", "Served",
    "Source", "Stretch", "Table", "TabletId", "TabletRows", "Topic", "TopicNames", "Topics", "Value", "Watch",
    "Write", "Writer", "Written",
}  # fmt: skip
"""Classes and types with several meanings on different floors, from before the rule."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_TEXT = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
_OLD = re.search(r"\n\| `.*?\n\n", _TEXT, re.DOTALL)
_MODULES = re.search(r"No module is called (.*?):", _TEXT, re.DOTALL)


@dataclass(frozen=True, slots=True)
class OldName:
    """A word that has lost a meaning, and the beginnings of places where it keeps another one."""

    word: str
    stays: tuple[str, ...]

    def is_broken_by(self, place: str, name: str) -> bool:
        words = {word.lower() for word in _WORD.findall(name)}
        return not words.isdisjoint((self.word, f"{self.word}s")) and not place.startswith(self.stays)


def _old_names() -> Iterator[OldName]:
    assert _OLD is not None
    for row in _OLD[0].strip().splitlines():
        _, name, _, stays, _ = row.split("|")
        yield OldName(name.strip(" `"), tuple(re.findall(r"`([^`]+)`", stays)))


OLD_NAMES = tuple(_old_names())


def test_the_page_has_words_old_names_and_modules() -> None:
    assert len(re.findall(r"^\| [\w ,]+ \| .* \|$", _TEXT, re.MULTILINE)) > 15
    assert {"group", "source", "compaction", "table", "transaction", "recovery"} == {each.word for each in OLD_NAMES}
    assert all(each.stays for each in OLD_NAMES)
    assert len(_mood_names()) == 9


@pytest.mark.parametrize("name", ["table", "TABLES", "_show_table", "TableOfRows", "rowTable"])
def test_a_word_is_found_in_any_spelling_and_only_where_it_is_old(name: str) -> None:
    old = OldName("table", ("cli/",))
    assert old.is_broken_by("storage/disk/x.py", name)
    assert not old.is_broken_by("cli/output.py", name)
    assert not old.is_broken_by("storage/disk/x.py", "tablet_stable")


@pytest.mark.parametrize("old", OLD_NAMES, ids=lambda old: old.word)
def test_no_identifier_has_an_old_name(old: OldName) -> None:
    places = {f"{path} {name}" for path, name in _identified() if old.is_broken_by(path, name)}
    assert sorted(places - EXCEPTIONS) == []


@pytest.mark.parametrize("old", OLD_NAMES, ids=lambda old: old.word)
def test_no_setting_of_ours_has_an_old_name(old: OldName) -> None:
    names = {*declarations(BrokerSettings), *declarations(TopicConfig)}
    own = sorted(name for name in names if name.startswith(("pq.", "pqbroker.")))
    assert own
    assert [name for name in own if old.is_broken_by(name, name)] == []


@pytest.mark.parametrize("old", OLD_NAMES, ids=lambda old: old.word)
def test_no_metric_has_an_old_name(old: OldName) -> None:
    families = [family for family in FAMILIES if not family.help.startswith("Deprecated")]
    names = [(family.exposed_name, name) for family in families for name in (family.name, *family.labels)]
    assert [name for place, name in names if old.is_broken_by(place, name)] == []


@pytest.mark.parametrize("old", OLD_NAMES, ids=lambda old: old.word)
def test_no_path_or_field_over_http_has_an_old_name(old: OldName) -> None:
    paths = openapi(ROUTES)["paths"]
    names = {(path, name) for path, methods in paths.items() for name in (path, *_fields(methods))}
    broken = {f"{path} {name}" for path, name in names if old.is_broken_by(path, name)}
    assert sorted(broken - EXCEPTIONS) == []


def test_no_module_is_named_by_mood() -> None:
    named = {source.path for source in sources() if source.module.rpartition(".")[2] in _mood_names()}
    assert sorted(named) == []


def test_a_constant_has_one_value() -> None:
    values: defaultdict[str, set[str]] = defaultdict(set)
    for source in product():
        if not source.path.startswith(DECLARATIONS):
            for name, value in _constants(source):
                values[name].add(value)
    assert {name for name, found in values.items() if len(found) > 1} - IN_EACH_FILE == CONSTANTS_OF_SEVERAL


def test_the_name_of_a_class_or_type_has_one_meaning_on_all_floors() -> None:
    """Types that are declared alike have one meaning, two classes never."""
    meanings: defaultdict[str, set[str]] = defaultdict(set)
    for source in product():
        if not source.path.startswith(DECLARATIONS):
            for name, meaning in _types(source):
                meanings[name].add(meaning)
    assert {name for name, found in meanings.items() if len(found) > 1} == NAMES_OF_SEVERAL


def test_a_constant_and_a_type_are_found_however_they_are_declared() -> None:
    source = Source("storage/x.py", "x")
    text = "class Slot: ...\nclass _Own: ...\nPlace = tuple[str, int]\nLIMIT, Last = 1 << 2, int\nMAGIC: Final = b'x'\n"
    source.__dict__["tree"] = ast.parse(text)
    assert [name for name, _ in _types(source)] == ["Slot", "Place", "Last"]
    assert list(_constants(source)) == [("LIMIT", "4"), ("MAGIC", "b'x'")]


def test_a_class_name_exists_once_on_a_floor() -> None:
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for source in product():
        if not source.path.startswith(DECLARATIONS):
            for node in source.nodes:
                if isinstance(node, ast.ClassDef):
                    places[source.path.partition("/")[0], node.name].append(source.at(node))
    assert [found for (_, name), found in places.items() if len(found) > 1] == []


def _mood_names() -> set[str]:
    assert _MODULES is not None
    return set(re.findall(r"`(\w+)`", _MODULES[1]))


@cache
def _identified() -> frozenset[tuple[str, str]]:
    """Path and identifier of all that we name ourselves."""
    own = (source for source in product() if not source.path.startswith(DECLARATIONS))
    return frozenset((source.path, name) for source in own for name in _identifiers(source))


def _identifiers(source: Source) -> Iterator[str]:
    """The module's name, and every name that is defined or used in it."""
    yield source.module.rpartition(".")[2]
    for node in source.nodes:
        if isinstance(node, ast.ClassDef | Function):
            yield node.name
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield node.arg


def _fields(schema: Any) -> Iterator[str]:
    """Names of properties and parameters, however deep."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        if "in" in schema and "name" in schema:
            yield schema["name"]
        for each in schema.values():
            yield from _fields(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _fields(each)


def _constants(source: Source) -> Iterator[tuple[str, str]]:
    """Public constants of a module with their values; numbers as what they amount to."""
    for name, value in _assigned(source):
        if re.fullmatch(r"[A-Z][A-Z0-9_]+", name):
            yield name, str(eval(ast.unparse(value))) if _is_number(value) else ast.unparse(value)


def _types(source: Source) -> Iterator[tuple[str, str]]:
    """Public classes and types of a module: a class by its place, a type by its declaration."""
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, source.at(node)
    for name, value in _assigned(source):
        if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name):
            yield name, ast.unparse(value)


def _assigned(source: Source) -> Iterator[tuple[str, ast.expr]]:
    """Names that a module assigns to, each with its value."""
    for node in source.tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            yield from ((name.id, value) for name, value in pairs if isinstance(name, ast.Name))


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is numbers and operators alone."""
    known = (ast.BinOp, ast.Constant, ast.UnaryOp, ast.operator, ast.unaryop)
    parts = list(ast.walk(node))
    constants = [part.value for part in parts if isinstance(part, ast.Constant)]
    return all(isinstance(part, known) for part in parts) and all(isinstance(each, int | float) for each in constants)

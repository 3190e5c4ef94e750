"""The folders of the broker import each other in one direction, types included."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

from tests.house.sources import Source, product

_PACKAGE = "pqbroker."


def test_no_folders_of_the_broker_import_each_other_in_a_ring() -> None:
    sources = [source for source in product() if source.path.startswith("broker/")]
    known = {source.path for source in sources}
    imported: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources:
        own = str(PurePosixPath(source.path).parent)
        imported[own] |= {folder for folder in _folders(source, known) if folder != own}
    assert len(imported) > 15
    assert _ring(imported) == []


def test_a_ring_is_found() -> None:
    assert sorted(set(_ring({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}))) == ["a", "b", "c"]


def _folders(source: Source, known: set[str]) -> Iterator[str]:
    """Folders of the modules that a file imports, wherever in it that stands."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{_PACKAGE}broker"):
            path = (node.module or "").removeprefix(_PACKAGE).replace(".", "/")
            for name in node.names:
                is_module = f"{path}/{name.name}.py" in known
                yield path if is_module or f"{path}/__init__.py" in known else str(PurePosixPath(path).parent)


def _ring(imported: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as ring:
        return list(ring.args[1])
    return []

"""Every module is there because something needs it. (Who may import whom: import-linter's contracts.)"""

import ast
import tomllib
from collections.abc import Iterator

from tests.house.sources import ROOT, Source, product

ENTRIES = {
    "pqbroker.__main__",
    "pqbroker.broker.node.child",
    "pqbroker.client",
    "pqbroker.pipeline.__main__",
    "pqbroker.pipeline.session",
    "pqbroker.pytest_plugin",
    "pqbroker.tables.work.__main__",
    "pqbroker.testing",
}
"""What users and Python itself start from."""
_MESSAGES = "pqbroker.protocol.messages."
AWAITED: dict[str, tuple[str, ...]] = {}
"""Messages that are declared, and compared with Kafka's, before a handler serves them; by what will need them."""


def test_no_module_is_imported_by_nobody() -> None:
    modules = {source.module for source in product()}
    imported = {name for source in product() for name in _imported(source) if name != source.module}
    packages = {source.module for source in product() if source.is_package}
    unused = modules - imported - packages - ENTRIES
    awaited = {_MESSAGES + name for names in AWAITED.values() for name in names}
    assert unused == awaited


def test_the_entries_are_modules() -> None:
    modules = {source.module for source in product()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {*project["scripts"].values(), *project["entry-points"]["pytest11"].values()}
    assert {name.partition(":")[0] for name in named} <= ENTRIES <= modules


def _imported(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)

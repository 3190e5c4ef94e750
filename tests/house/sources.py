"""The project's own Python files, for the tests of the house rules; each is read and parsed when a test first asks."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Function = ast.FunctionDef | ast.AsyncFunctionDef
PACKAGES = (
    "broker", "cli", "conf", "doctor", "fixture", "http_client", "pipeline", "pq", "protocol", "registry", "security",
    "storage", "tables",
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """One file: its path from the root, its import name, its text and its tree."""

    path: str
    module: str

    @cached_property
    def text(self) -> str:
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree's: many rules walk it."""
        return tuple(ast.walk(self.tree))

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/")

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def room(self) -> str:
        """The folder."""
        return self.path.rpartition("/")[0]

    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))

    def at(self, node: ast.AST) -> str:
        """Where a finding is, to click on."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}"


@cache
def sources() -> tuple[Source, ...]:
    """Every file, product and tests."""
    return tuple(_source(path) for path in sorted(_paths()))


def product() -> Iterator[Source]:
    """What is installed, without the tests."""
    return (source for source in sources() if not source.is_test)


def _paths() -> Iterator[Path]:
    for package in (*PACKAGES, "tests"):
        yield from (ROOT / package).rglob("*.py")
    yield from (ROOT / "src" / "pqbroker").glob("*.py")


def _source(path: Path) -> Source:
    relative = path.relative_to(ROOT)
    inside = relative.relative_to("src/pqbroker") if relative.parts[0] == "src" else relative
    parts = [*inside.parts[:-1], *([] if path.stem == "__init__" else [path.stem])]
    module = ".".join(parts) if relative.parts[0] == "tests" else ".".join(["pqbroker", *parts])
    return Source(relative.as_posix(), module)

"""Rules of the house that no linter has (CONTRIBUTING.md), sizes left out. Each test names every place at fault."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from tests.house.sources import PACKAGES, ROOT, Function, Source, product, sources

CATCH_ALL = {"broker/kafka/net/dispatch.py", "storage/disk/committer.py", "src/pqbroker/__main__.py"}
BANNED_WORDS = {"util", "utils", "helper", "helpers", "common", "manager", "misc"}

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_TO_DO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def test_a_module_says_what_it_is() -> None:
    assert not [source.path for source in product() if source.text.strip() and not ast.get_docstring(source.tree)]


def test_an_init_file_is_empty_or_one_docstring() -> None:
    inits = (source for source in sources() if source.is_package and source.path != "src/pqbroker/__init__.py")
    assert not [source.path for source in inits if source.tree.body[bool(ast.get_docstring(source.tree)) :]]


def test_everything_is_caught_in_three_places_only() -> None:
    found = {source.path for source in product() for _ in _catch_all(source, "Exception")}
    assert found == {path for path in CATCH_ALL if (ROOT / path).exists()}


def test_what_even_catches_an_exit_raises_it_again() -> None:
    found = [
        source.at(handler)
        for source in sources()
        for handler in _catch_all(source, "BaseException")
        if not any(isinstance(step, ast.Raise) and step.exc is None for step in ast.walk(handler))
    ]
    assert not found


def test_errors_that_are_kept_are_raised_without_the_frames_of_earlier_raises() -> None:
    """`raised_again` says why. A command or a job raises one once, and ends."""
    found = [
        source.at(node)
        for source in product()
        if not source.path.startswith(("cli/", "pipeline/"))
        for node in source.nodes
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Attribute)
        and isinstance(node.exc.value, ast.Name) and node.exc.value.id == "self"
    ]  # fmt: skip
    assert not found


def test_no_name_says_that_nobody_knew_what_the_thing_is() -> None:
    found = [f"{place} {name}" for source in sources() for place, name in _names(source) if _is_banned(name)]
    assert not found


def test_nobody_reaches_through_anothers_private_parts() -> None:
    found = [
        source.at(node)
        for source in sources()
        for node in source.nodes
        if isinstance(node, ast.Attribute) and _is_private(node.attr)
        and isinstance(node.value, ast.Attribute) and _is_private(node.value.attr)
    ]  # fmt: skip
    assert not found


def test_no_comment_leaves_work_for_later() -> None:
    found = [
        f"{source.path}:{line} {comment}"
        for source in sources()
        if _TO_DO.search(source.text)  # to find where the comments begin takes long
        for line, comment in _comments(source)
        if _TO_DO.search(comment)
    ]
    assert not found


def test_tests_of_the_broker_lie_as_its_floors_and_rooms() -> None:
    rooms = {source.room.removeprefix("tests/") for source in sources() if source.path.startswith("tests/broker/")}
    assert sorted(room for room in rooms if not (ROOT / room).is_dir()) == []


def test_every_package_is_linked_under_the_import_name() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    links = {path.name: str(path.readlink()) for path in (ROOT / "src" / "pqbroker").iterdir() if path.is_symlink()}
    assert packages == set(PACKAGES)
    assert links == {name: f"../../{name}" for name in packages}


def _catch_all(source: Source, name: str) -> Iterator[ast.ExceptHandler]:
    """Handlers of the named class; one without a class catches BaseException."""
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler):
            classes = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            caught = [each.id if isinstance(each, ast.Name) else each and ast.unparse(each) for each in classes]
            if name in caught or (name == "BaseException" and caught == [None]):
                yield node


def _names(source: Source) -> Iterator[tuple[str, str]]:
    """Place and name of the file, and of every class and function in it."""
    yield source.path, source.module.rpartition(".")[2]
    for node in source.nodes:
        if isinstance(node, ast.ClassDef | Function):
            yield source.at(node), node.name


def _is_banned(name: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    return not BANNED_WORDS.isdisjoint(words) or words == ["base"] or (words[:1] == ["handle"] and len(words) > 1)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _comments(source: Source) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string

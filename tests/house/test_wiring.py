"""A node is wired once: its parts get what they need when they are made, and nothing is put into them later."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.house.sources import Source, product

_ASSEMBLING = ("broker/node/", "broker/services/cells/cell_owner.py")
_PARTS = {"broker/node/server.py", "broker/services/cells/cell_owner.py"}
"""Files whose classes hold parts that run; the others' hold numbers."""
_REPLACED_WHOLE = {"CellOwner.current"}
"""An opening of the system cell."""
_KNOWN_ONCE_BOUND = {"Server._http", "Server.listeners", "Server._http_close"}
"""The start gives them: ports that were left to the system."""


def test_no_part_of_a_node_is_put_into_another_one_that_exists() -> None:
    assert [found for source in _assembling() for found in _put_into_others(source.tree)] == []


def test_no_part_of_a_node_is_replaced_by_another_method_than_the_one_that_made_it() -> None:
    found = {name for source in _assembling() if source.path in _PARTS for name in _made_twice(source.tree)}
    assert found == _REPLACED_WHOLE | _KNOWN_ONCE_BOUND


def test_both_rules_see_what_breaks_them() -> None:
    tree = ast.parse("""
class Owner:
    def __init__(self):
        self.count = 0
    def open(self):
        self.current = open_it()
        self.current.topics = topics
        self.count += 1
    def reopen(self):
        lost, self.current = self.current, open_it()
""")
    assert list(_put_into_others(tree)) == ["self.current.topics"]
    assert list(_made_twice(tree)) == ["Owner.current"]


def _assembling() -> list[Source]:
    found = [source for source in product() if source.path.startswith(_ASSEMBLING)]
    assert len(found) > 5
    return found


def _assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Attributes that are assigned somewhere below; counting up is no assignment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


def _put_into_others(tree: ast.AST) -> Iterator[str]:
    counted = {node.target for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
    for target in _assigned(tree):
        is_own = isinstance(target.value, ast.Name) and target.value.id == "self"
        if not is_own and target not in counted:
            yield ast.unparse(target)


def _made_twice(tree: ast.AST) -> Iterator[str]:
    """Attributes of a class that two of its methods assign."""
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        methods: defaultdict[str, set[str]] = defaultdict(set)
        for method in owner.body:
            counted = {node.target for node in ast.walk(method) if isinstance(node, ast.AugAssign)}
            for target in _assigned(method):
                if target not in counted:
                    methods[target.attr].add(getattr(method, "name", ""))
        yield from (f"{owner.name}.{name}" for name, where in methods.items() if len(where) > 1)

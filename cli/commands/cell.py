"""`pqbroker cell` and `pqbroker bundle`: cells of a pqbroker and bundles of them, over its HTTP address."""

from json import JSONDecodeError, loads
from typing import Annotated, Any
from urllib.parse import quote

from pqbroker.cli.command import Family, declare
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.options import INT32_MAX, Http, Json, Yes, assignments
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.web import DEFAULT_HTTP, Web

cells = Family("List, create, move and remove the cells of a pqbroker.")
bundles = Family("List, create, change and remove bundles of cells of a pqbroker.")

_CELL_COLUMNS = ("id", "bundle", "health", "node", "generation", "tablets", "cause")
_BUNDLE_COLUMNS = ("name", "health", "node_tag_filter", "cells")

CellId = Annotated[int, Argument(metavar="CELL", least=0, most=INT32_MAX, help="Id of the cell.")]
Name = Annotated[str, Argument(metavar="BUNDLE", help="Name of the bundle.")]
Filter = Annotated[
    str | None, option("--filter", metavar="FORMULA", help="Node tags that its cells need, such as 'ssd & !old'.")
]
Options = Annotated[list[str] | None, option("--option", metavar="NAME=VALUE", help="Option to set; repeatable.")]


@declare(cells, "list", "pqbroker cell list")
def list_cells(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List the cells: their bundle, and whether they are open."""
    with Web(http) as web:
        found = web.get("/v1/cells", "cells")["cells"]
    if json:
        for cell in found:
            show_json(cell)
    else:
        show_table(_CELL_COLUMNS, ([_shown(cell.get(name)) for name in _CELL_COLUMNS] for cell in found))


@declare(cells, "create", "pqbroker cell create fast")
def create_cell(bundle: Name = "default", http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Create a cell of a bundle; new tablets of the bundle's topics are spread over its cells."""
    with Web(http) as web:
        made = web.post("/v1/cells", {"bundle": bundle}, "id")
    if json:
        show_json(made)
    else:
        say(f"created cell {made['id']} of bundle {made['bundle']}, {made['health']}")


@declare(cells, "remove", "pqbroker cell remove 3")
def remove_cell(
    cell: CellId,
    evacuate: Annotated[
        bool, option("--evacuate", help="Move its tablets to other cells of its bundle first, while they are served.")
    ] = False,
    yes: Yes = False,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Remove a cell that has no tablets."""
    confirm(f"remove cell {cell}?", yes)
    with Web(http) as web:
        web.delete(f"/v1/cells/{cell}?evacuate={str(evacuate).lower()}")
    if json:
        show_json({"cell": cell, "removed": True})
    else:
        say(f"removed cell {cell}")


@declare(cells, "move", "pqbroker cell move 3 --node 2")
def move_cell(
    cell: CellId,
    node: Annotated[
        int, option("--node", metavar="NUMBER", least=1, most=INT32_MAX, help="Number of the node, from 1.")
    ],
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Move a cell to another node of a broker with several, while its topics are served."""
    with Web(http) as web:
        moved = web.post(f"/v1/cells/{cell}/move", {"node": node}, "id")
    if json:
        show_json(moved)
    else:
        say(f"cell {moved['id']} is at node {moved['node']}, {moved['health']}")


@declare(bundles, "list", "pqbroker bundle list")
def list_bundles(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List the bundles: their cells, options and filters of node tags."""
    with Web(http) as web:
        found = web.get("/v1/bundles", "bundles")["bundles"]
    if json:
        for bundle in found:
            show_json(bundle)
    else:
        show_table(_BUNDLE_COLUMNS, ([_shown(bundle[name]) for name in _BUNDLE_COLUMNS] for bundle in found))


@declare(bundles, "create", "pqbroker bundle create fast --filter 'ssd & !old'")
def create_bundle(
    bundle: Name,
    filter_: Filter = None,
    options: Options = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Create a bundle, which has no cells at first."""
    with Web(http) as web:
        made = web.post("/v1/bundles", {"name": bundle, **_changes(filter_, options)}, "name")
    if json:
        show_json(made)
    else:
        say(f"created bundle {made['name']}; `pqbroker cell create {made['name']}` gives it a cell")
        _tell_without_effect(made)


@declare(bundles, "set", "pqbroker bundle set fast --option dynamic_memory_pool_weight=2")
def set_bundle(
    bundle: Name,
    filter_: Filter = None,
    options: Options = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Change a bundle's filter, or its options: most of them only while no table of it is mounted."""
    with Web(http) as web:
        changed = web.patch(f"/v1/bundles/{quote(bundle, safe='')}", _changes(filter_, options), "name")
    if json:
        show_json(changed)
    else:
        say(f"changed bundle {changed['name']}; its health is {changed['health']}")
        _tell_without_effect(changed)


@declare(bundles, "remove", "pqbroker bundle remove fast")
def remove_bundle(bundle: Name, yes: Yes = False, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Remove a bundle that has no cells."""
    confirm(f"remove bundle {bundle}?", yes)
    with Web(http) as web:
        web.delete(f"/v1/bundles/{quote(bundle, safe='')}")
    if json:
        show_json({"bundle": bundle, "removed": True})
    else:
        say(f"removed bundle {bundle}")


def _changes(filter_: str | None, options: list[str] | None) -> dict[str, Any]:
    given = assignments("--option", options or [], "dynamic_memory_pool_weight=2")
    changes: dict[str, Any] = {} if filter_ is None else {"node_tag_filter": filter_}
    return changes | ({"options": {name: _value(text) for name, text in given.items()}} if given else {})


def _tell_without_effect(bundle: dict[str, Any]) -> None:
    if names := bundle["options_without_effect"]:
        say(f"stored without effect: {', '.join(names)}; on one machine a cell has one peer and no quorum")


def _value(text: str) -> Any:
    """A number, true or false, or the text as it is."""
    try:
        found = loads(text)
    except JSONDecodeError:
        return text
    return found if isinstance(found, bool | int | float) else text


def _shown(value: object) -> object:
    if value is None or value == "":
        return "-"
    return ",".join(map(str, value)) if isinstance(value, list) else value

"""`pqbroker get`, `list`, `exists` and `set`: tables, topics and the system by path, as in //shop/orders/@schema."""

import json as encoding
from typing import Annotated, Any
from urllib.parse import quote

from pqbroker.cli.command import Family, declare
from pqbroker.cli.options import Http, Json, json_or_text
from pqbroker.cli.output import say, show_json
from pqbroker.cli.parsing import Argument
from pqbroker.cli.web import DEFAULT_HTTP, Web

getting, listing, setting, finding = Family(), Family(), Family(), Family()

_PAGE = 1000
_INDENT = 2

Path = Annotated[str, Argument(metavar="PATH", help="Path, as in //shop/orders, //shop/orders/@schema or //sys.")]


@declare(getting, "get", "pqbroker get //shop/orders/@schema")
def get(path: Path, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Print what a path names: a table, a topic, a tablet, a cell, or an attribute (@) of one."""
    with Web(http) as web:
        _show(web.value("GET", _place(path)), json)


@declare(listing, "list", "pqbroker list //sys")
def list_names(path: Path = "//", http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List the names below a path: tables and topics, and what runs them under //sys."""
    with Web(http) as web:
        after = ""
        while True:
            names = web.value("GET", f"{_place(path)}?children=true&limit={_PAGE}{after}")
            for name in names:
                show_json({"name": name}) if json else say(name)
            if len(names) < _PAGE:
                return
            after = f"&after={quote(names[-1], safe='')}"


@declare(finding, "exists", "pqbroker exists //shop/orders")
def exists(path: Path, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Print true if a path names something, such as a table or an attribute; else false."""
    with Web(http) as web:
        _show(web.exists(f"{_place(path)}{'' if '@' in path else '?children=true&limit=1'}"), json)


@declare(setting, "set", "pqbroker set //shop/orders/@max_data_ttl 86400000")
def set_value(
    path: Path,
    value: Annotated[str, Argument(metavar="VALUE", help="JSON, or a text.")],
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Set an attribute of a table or of a bundle; one of a table takes effect at a remount."""
    with Web(http) as web:
        _show(web.value("PUT", _place(path), json_or_text(value)), json)


def _place(path: str) -> str:
    return f"/v1/tree/{quote(path.lstrip('/'), safe='/@')}"


def _show(value: Any, json: bool) -> None:
    say(encoding.dumps(value, ensure_ascii=False, indent=None if json else _INDENT))

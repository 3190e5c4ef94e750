"""`pqbroker token`: make, list and revoke tokens, which log programs in over HTTP."""

from typing import Annotated
from urllib.parse import quote

from pqbroker.cli.command import Family, declare
from pqbroker.cli.options import Http, Json
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.web import DEFAULT_HTTP, Web

app = Family("Make, list and revoke tokens, which log programs in over HTTP.")

_ALL = "/v1/tokens"
_MS = 1000

TokenId = Annotated[str, Argument(metavar="ID", help="Id of the token: 16 digits that `token list` prints.")]


@declare(app, "create", "pqbroker token create --note dashboard --lifetime 86400")
def create(
    of: Annotated[
        str | None, option("--for", metavar="NAME", help="User of the token; the caller unless given.")
    ] = None,
    note: Annotated[str, option("--note", metavar="TEXT", help="Note that `token list` shows.")] = "",
    lifetime: Annotated[
        int | None, option("--lifetime", metavar="SECONDS", least=1, help="Time after which the token ends.")
    ] = None,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Make a token and print it, this once. Programs send it as `Authorization: Bearer TOKEN`."""
    body: dict[str, object] = {"note": note}
    if of is not None:
        body["user"] = of
    if lifetime is not None:
        body["lifetime_ms"] = lifetime * _MS
    with Web(http) as web:
        made = web.post(_ALL, body, "token")
    if json:
        show_json(made)
    else:
        say(made["token"])


@declare(app, "list", "pqbroker token list --json")
def list_tokens(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List tokens: all if the caller may describe the cluster, else the caller's own."""
    with Web(http) as web:
        found = list(web.items(_ALL, "tokens", "after"))
    if json:
        for each in found:
            show_json(each)
    elif found:
        show_table(("id", "user", "note"), [(each["id"], each["user"], each["note"]) for each in found])
    else:
        say("no tokens; `pqbroker token create` makes one")


@declare(app, "revoke", "pqbroker token revoke 00f1e2d3c4b5a697")
def revoke(token: TokenId, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Revoke a token. Requests with it are refused from then on."""
    with Web(http) as web:
        web.delete(f"{_ALL}/{quote(token, safe='')}")
    if json:
        show_json({"id": token, "revoked": True})
    else:
        say(f"revoked the token {token}")

"""`pqbroker features`: levels of Kafka's features of a pqbroker, over its HTTP address."""

from typing import Annotated, Any

from pqbroker.cli.command import Family, declare
from pqbroker.cli.options import Http, Json, assignments
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import WrongInput
from pqbroker.cli.web import DEFAULT_HTTP, Web

app = Family("List and set the levels of Kafka's features that a pqbroker has.")
_PATH = "/v1/features"
_EXAMPLE = "transaction.version=1"

LevelArguments = Annotated[
    list[str], Argument(metavar="FEATURE=LEVEL", help="Feature and its level; several may be given. 0 disables one.")
]
DryRun = Annotated[bool, option("--dry-run", help="Only check: nothing changes.")]


@declare(app, "list", "pqbroker features list")
def list_features(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List the features, the levels that they may have, and those that clients use."""
    with Web(http) as web:
        found = web.get(_PATH, "features")["features"]
    if json:
        for one in found:
            show_json(one)
    else:
        names = ("name", "least", "greatest", "level")
        show_table(("feature", "least", "greatest", "level"), ([one[name] for name in names] for one in found))


@declare(app, "upgrade", "pqbroker features upgrade transaction.version=2")
def upgrade(level: LevelArguments, dry_run: DryRun = False, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Raise levels of features, all or none; clients use them from their next connection on."""
    _change(level, {"dry_run": dry_run}, http, json)


@declare(app, "downgrade", "pqbroker features downgrade transaction.version=1")
def downgrade(level: LevelArguments, dry_run: DryRun = False, http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """Lower levels of features, all or none; clients use them from their next connection on."""
    _change(level, {"dry_run": dry_run, "downgrade": True}, http, json)


def _change(given: list[str], more: dict[str, bool], http: str, json: bool) -> None:
    levels = {name: _level(name, text) for name, text in assignments("FEATURE=LEVEL", given, _EXAMPLE).items()}
    with Web(http) as web:
        found: list[dict[str, Any]] = web.patch(_PATH, {"levels": levels, **more}, "features")["features"]
    if json:
        for one in found:
            show_json(one)
        return
    for name, level in levels.items():
        say(f"{name} can be set to {level}" if more["dry_run"] else f"{name} is at level {level}")


def _level(name: str, text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise WrongInput(f"the level of {name} is {text!r}: give a whole number, as in {_EXAMPLE}")
    return int(text)

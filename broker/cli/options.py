"""Options and arguments that several commands share, and the completion of names by asking a broker."""

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from pqbroker.broker.cli.cluster import Cluster
from pqbroker.broker.cli.groups import list_groups
from pqbroker.broker.cli.link import DEFAULT_KAFKA
from pqbroker.broker.cli.refusals import CommandError, WrongInput

COUNT_MAX, REPLICATION_FACTOR_MAX = (1 << 31) - 1, (1 << 15) - 1
"""The most that a request of Kafka's protocol can name."""
COMPLETION_TIMEOUT_S = 0.5
"""A shell waits for it: better no name than a slow one."""


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin so; none when no broker answers quickly."""
    return _complete(ctx, incomplete, lambda cluster: cluster.topics())


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Groups that begin so; none when no broker answers quickly."""
    return _complete(ctx, incomplete, list_groups)


def _complete(ctx: typer.Context, incomplete: str, names: Callable[[Cluster], Iterable[str]]) -> list[str]:
    try:
        with Cluster(ctx.params.get("broker") or DEFAULT_KAFKA, COMPLETION_TIMEOUT_S) as cluster:
            return sorted(name for name in names(cluster) if name.startswith(incomplete))
    except CommandError:
        return []


def each_once(names: list[str]) -> list[str]:
    """A name that is given twice means what it means once: done again, it would be refused."""
    return list(dict.fromkeys(names))


Broker = Annotated[
    str,
    typer.Option("--broker", metavar="HOST:PORT", envvar="PQBROKER_BROKER", help="A broker of the cluster."),
]
Http = Annotated[
    str,
    typer.Option("--http", metavar="HOST:PORT", envvar="PQBROKER_HTTP", help="The broker's HTTP address."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topics, help="A topic.")]
TopicNames = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", autocompletion=complete_topics, callback=each_once, help="One topic or several."),
]
GroupNames = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", autocompletion=complete_groups, callback=each_once, help="One group or several."),
]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups, help="A group.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def assignments(option: str, texts: list[str], example: str) -> dict[str, str]:
    """NAME=VALUE each, the last for a name wins; WrongInput."""
    parsed: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise WrongInput(f"{option} {text!r}: give NAME=VALUE, as in {example}")
        parsed[name.strip()] = value
    return parsed

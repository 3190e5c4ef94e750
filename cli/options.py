"""Options and arguments that several commands share, and the completion of names by asking a broker."""

import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any
from urllib.parse import quote

from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.isolation import ReadIsolation
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.refusals import CommandError, WrongInput

INT32_MAX, INT16_MAX = (1 << 31) - 1, (1 << 15) - 1
"""The most that a request of Kafka's protocol can name."""
COMPLETION_TIMEOUT_S = 0.5
"""A shell waits for it: better no name than a slow one."""


def complete_topics(broker: str, beginning: str) -> list[str]:
    """Topics that begin so; none when no broker answers quickly."""
    return _complete(broker, beginning, lambda cluster: cluster.topics())


def complete_groups(broker: str, beginning: str) -> list[str]:
    """Groups that begin so; none when no broker answers quickly."""
    from pqbroker.cli.kafka.groups import list_groups

    return _complete(broker, beginning, list_groups)


def _complete(broker: str, beginning: str, names: Callable[[Cluster], Iterable[str]]) -> list[str]:
    try:
        with Cluster(broker, COMPLETION_TIMEOUT_S) as cluster:
            return sorted(name for name in names(cluster) if name.startswith(beginning))
    except CommandError:
        return []


Broker = Annotated[
    str,
    option(
        "--broker",
        "-b",
        metavar="HOST:PORT",
        environment="PQBROKER_BROKER",
        help="Kafka address of a broker of the cluster; several with commas; port 9092 unless given.",
    ),
]
Http = Annotated[
    str,
    option(
        "--http",
        metavar="[https://]HOST:PORT",
        environment="PQBROKER_HTTP",
        help="HTTP address of the broker; port 8092 unless given; https:// before it for TLS.",
    ),
]
Json = Annotated[bool, option("--json", "-j", help="Print JSON, one object per line.")]
IsolationOption = Annotated[
    ReadIsolation,
    option(
        "--isolation",
        metavar="LEVEL",
        help="Isolation level: read_committed leaves out records of aborted Kafka transactions and ends before open "
        "ones; read_uncommitted reads all records.",
    ),
]
TopicName = Annotated[str, Argument(metavar="TOPIC", complete=complete_topics, help="Name of the topic.")]
TopicNames = Annotated[
    list[str],
    Argument(metavar="TOPIC", complete=complete_topics, help="Names of one or more topics."),
]
GroupNames = Annotated[
    list[str],
    Argument(
        metavar="GROUP",
        complete=complete_groups,
        help="Names of one or more consumer groups.",
    ),
]
GroupName = Annotated[str, Argument(metavar="GROUP", complete=complete_groups, help="Name of the consumer group.")]
Table = Annotated[
    str, Argument(metavar="TABLE", complete=complete_topics, help="Path of the table, or name of its topic.")
]
InTransaction = Annotated[
    str | None,
    option(
        "--transaction", metavar="TRANSACTION", also=("--tx",),
        help="Read sorted tables as they were when this transaction began, which keeps it open too.",
    ),
]  # fmt: skip
Yes = Annotated[bool, option("--yes", "-y", help="Do not ask for confirmation.")]


def table_path(table: str) -> str:
    """Return the path of a table over HTTP, by its own path `//a/b` or its topic `a.b`."""
    return f"/v1/tables/{_quoted(table)}"


def queue_path(queue: str) -> str:
    """Return the path of a queue over HTTP, by its table's path `//a/b` or its topic `a.b`."""
    return f"/v1/queues/{_quoted(queue)}"


def _quoted(table: str) -> str:
    return quote(table[2:].replace("/", ".") if table.startswith("//") else table, safe="")


def read_at(timestamp: int | None, transaction: str | None) -> dict[str, Any]:
    """Return the fields of a request that say when sorted tables are read; none: now. WrongInput for both."""
    if timestamp is not None and transaction is not None:
        raise WrongInput("give one of --at and --transaction: a transaction reads at its start")
    given = {"timestamp": timestamp, "transaction": transaction}
    return {name: value for name, value in given.items() if value is not None}


def assignments(option: str, texts: list[str], example: str) -> dict[str, str]:
    """NAME=VALUE each, the last for a name wins; WrongInput."""
    parsed: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise WrongInput(f"{option} {text!r}: give NAME=VALUE, as in {example}")
        parsed[name.strip()] = value
    return parsed


def json_or_text(text: str) -> Any:
    """Return the value of JSON; else the text itself, so that it needs no quotes of its own."""
    try:
        return json.loads(text)
    except ValueError:
        return text

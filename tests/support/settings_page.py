"""Writes docs/settings.md from the declarations in conf/: `python -m tests.support.settings_page`."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import Declaration, Effect, declarations
from pqbroker.conf.dynamic import DYNAMIC
from pqbroker.conf.sorted_attributes import SortedAttributes
from pqbroker.conf.topic import TopicConfig
from tests.support.limits import LIMITS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"

_HEAD = """\
# Settings

This page is written from the declarations in `conf/` (`python -m tests.support.settings_page`); a test compares them.

A node's settings come from, the first one that names a setting wins:

1. flags: `--set NAME=VALUE`, of which the last for a name counts;
2. the environment: the name in upper case, dots as underscores, under `PQBROKER_` (written once);
   `node.id` is `PQBROKER_NODE_ID`, `pqbroker.durability` is `PQBROKER_DURABILITY`;
3. the file given with `--config`, in the form of Kafka's `.properties`;
4. the default.

A setting of listeners (`ssl.`, `sasl.`) may be given for one of them: `listener.name.NAME.` stands before it, with the
listener's name in small letters. It wins over the one of all listeners.

An unknown name or a value out of range stops the start with the place it stands at. So does a setting of Kafka's that
promises protection (keys, users, mechanisms: "Refused" below lists them), as nothing would be protected by it.

What is marked "running" can also be changed while the node runs, for it alone or for all nodes at once, by Kafka's
means (`kafka-configs --alter --entity-type brokers`): durable, in force at once, and over all of the above. Topics that
leave a config open follow.

A topic's configs are given when it is created or altered, by Kafka's own means.
"""


def settings_page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    broker = list(declarations(BrokerSettings).values())
    topic = list(declarations(TopicConfig).values())
    yield "## Node\n"
    yield from _table(one for one in broker if one.effective)
    yield "\n## Topic\n"
    yield from _table(one for one in topic if one.effective)
    yield "\n## Attributes of a sorted table\n"
    yield "Sizes are bytes, times milliseconds. What is set acts in a tablet from its next mount or remount on.\n"
    yield from _table(declarations(SortedAttributes).values())
    yield "\n## What a client can make grow\n"
    yield "Each limit, its default, what happens to what is over it, and the test that exceeds it (below `tests/`).\n"
    yield 'Whose it is: addresses share a pool of all clients ("Shares" in [operate.md](operate.md#shares)), an owner'
    yield "(a topic, a group, a table, the node) has its own, a request or a connection has one to itself.\n"
    yield "| what grows | limit | default | whose | beyond it | test |"
    yield "|---|---|---|---|---|---|"
    known = {one.name: one for one in (*topic, *broker)}
    for limit in LIMITS:
        names = ", ".join(f"`{name}`" for name in limit.names)
        default = _default(known[limit.names[0]]) if limit.names[0] in known else ""
        yield f"| {limit.what} | {names} | {default} | {limit.share.value} | {limit.beyond} | `{limit.test}` |"
    yield "\n## Accepted without effect\n"
    yield "Kafka has these, tools set them, and here they are kept and described but change nothing.\n"
    yield "### Topic\n"
    yield from _short_table(one for one in topic if not one.effective)
    yield "\n### Node\n"
    yield from _short_table(one for one in broker if one.effect is Effect.NONE)
    yield "\n## Refused\n"
    yield "Kafka has these for access control; tools see their defaults. A node that is given another value does not"
    yield "start, and refuses it while it runs.\n"
    yield from _short_table(one for one in broker if one.effect is Effect.REFUSED)


def _table(rows: Iterable[Declaration]) -> Iterator[str]:
    yield "| name | type | default | allowed | meaning |"
    yield "|---|---|---|---|---|"
    for one in rows:
        yield f"| {_name(one)} | {one.kind.name.lower()} | {_default(one)} | {_allowed(one)} | {one.meaning} |"


def _short_table(rows: Iterable[Declaration]) -> Iterator[str]:
    yield "| name | default | why |"
    yield "|---|---|---|"
    for one in rows:
        yield f"| {_name(one)} | {_default(one)} | {one.meaning} |"


def _name(one: Declaration) -> str:
    of_node = declarations(BrokerSettings).get(one.name) is one
    return f"`{one.name}` (running)" if of_node and one.name in DYNAMIC else f"`{one.name}`"


def _default(one: Declaration) -> str:
    text = one.format(one.default)
    return f"`{text}`" if text else ""


def _allowed(one: Declaration) -> str:
    if one.choices:
        return ", ".join(f"`{choice}`" for choice in one.choices)
    low = "" if one.low is None else f"from {one.low}"
    high = "" if one.high is None else f"to {one.high}"
    return " ".join(filter(None, (low, high)))


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")

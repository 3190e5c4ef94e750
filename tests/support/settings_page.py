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

All settings of a node, of topics, and of sorted tables. The page is written from the declarations in `conf/`
(`python -m tests.support.settings_page`).

A node's setting has the value of the first of these that names it:

1. flags: `--set NAME=VALUE`; if a name is given twice, the last one counts;
2. the environment: `PQBROKER_` and the name in upper case, with underscores for dots; a name that begins with
   `pqbroker.` has it only once. `node.id` is `PQBROKER_NODE_ID`, `pqbroker.durability` is `PQBROKER_DURABILITY`;
3. the file given with `--config`, in the form of Kafka's `.properties`;
4. the default.

Settings of listeners (`ssl.`, `sasl.`) may be given for one listener, with `listener.name.NAME.` before the setting
and the listener's name in small letters. That value is used instead of the one for all listeners.

If a name is unknown or a value out of range, the broker does not start, and the message says where it was given. The
same is true of Kafka's settings that promise a protection which this broker does not have ([Refused](#refused)).

Settings marked "running" can also be changed while the broker runs (`kafka-configs --alter --entity-type brokers`).
Such a value is stored, takes effect at once, and counts before all of the above. Topics without a value of their own
use it too.

Configs of topics are given when a topic is created, or changed later, with the tools of Kafka or of pqbroker.
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
    yield "Sizes are bytes, times milliseconds. A value takes effect in a tablet when it is mounted or remounted.\n"
    yield from _table(declarations(SortedAttributes).values())
    yield "\n## What a client can make grow\n"
    yield "Each limit, its default, what happens above it, and the test that exceeds it (in `tests/`). *Whose* says"
    yield "what has such a limit: all addresses share one ([shares](operate.md#shares)); each owner (a topic, a group,"
    yield "a table, the node) has one; or each request or connection.\n"
    yield "| what grows | limit | default | whose | beyond it | test |"
    yield "|---|---|---|---|---|---|"
    known = {one.name: one for one in (*topic, *broker)}
    for limit in LIMITS:
        names = ", ".join(f"`{name}`" for name in limit.names)
        default = _default(known[limit.names[0]]) if limit.names[0] in known else ""
        yield f"| {limit.what} | {names} | {default} | {limit.share.value} | {limit.beyond} | `{limit.test}` |"
    yield "\n## Accepted without effect\n"
    yield "Settings of Kafka that tools may set. They are stored and shown, and change nothing.\n"
    yield "### Topic\n"
    yield from _short_table(one for one in topic if not one.effective)
    yield "\n### Node\n"
    yield from _short_table(one for one in broker if one.effect is Effect.NONE)
    yield "\n## Refused\n"
    yield "Settings of Kafka's security that this broker does not have; tools see their defaults. With another value"
    yield "the broker does not start, and while it runs it refuses the change.\n"
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

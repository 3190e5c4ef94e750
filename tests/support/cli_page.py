"""Writes docs/cli.md from the commands: `python -m tests.support.cli_page`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from pqbroker.broker.cli.app import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"

_HEAD = """\
# Commands

This page is written from the commands (`python -m tests.support.cli_page`); a test compares them.

`pqbroker serve` is the broker. All else is a client, but for `doctor` and `crashtest`: it speaks Kafka's protocol with
any broker, ours or Apache Kafka, the one at `127.0.0.1:9092` unless `--broker HOST:PORT` or the environment's
`PQBROKER_BROKER` names another. A command that needs what a broker does not serve says so. Only `pqbroker tablet` is
for brokers of ours alone: it asks the HTTP address, `127.0.0.1:8092` unless `--http HOST:PORT` or `PQBROKER_HTTP` names
another.

- `--json` prints objects with the keys below, one a line; else there are tables for people. Progress bars go to
  standard error, and only to a terminal.
- Exit status: 0 done, 1 failed or refused, 2 wrong input. The reason stands on standard error, with the right form when
  the input was wrong.
- A command that waits for a broker says so on standard error within two seconds: 5 s at most for a connection, 10 s for
  its first answer, 60 s for another. `produce`, `consume` and `bench` wait 60 s for a broker that has gone, `consume
  --follow` for ever, and go on when it is back.
- A *position* is `beginning` (`earliest`), `end` (`latest`), an offset (`42`), a time (`2026-01-31T12:00`, local unless
  it ends in `Z` or `+02:00`) or an age (`90s`, `15m`, `2h`, `7d`). A time means the first record at or after it.
- What destroys asks first; `--yes` is for scripts.
- `pqbroker --install-completion` teaches the shell the commands, the options, and the names of topics and groups.

| command | keys of its JSON |
|---|---|
"""

KEYS = {
    "topic create": "topic, partitions",
    "topic list": "topic, partitions, replicas",
    "topic describe": (
        "topic, partitions (partition, leader, leader_epoch, replicas, in_sync, start, end, records), configs"
    ),
    "topic grow": "topic, partitions, before",
    "topic config": "topic, configs (name: value, source)",
    "topic trim": "topic, partitions (partition, before, start, deleted)",
    "topic delete": "topic, deleted",
    "produce": "topic, records, bytes, seconds, partitions (partition, first, last)",
    "consume": "topic, partition, offset, timestamp, key, value, headers",
    "group list": "group, state, protocol_type",
    "group describe": (
        "group, state, protocol, members (member, client, host, partitions), "
        "offsets (topic, partition, offset, end, lag, member, client, host)"
    ),
    "group reset": "group, dry_run, offsets (topic, partition, before, offset)",
    "group delete": "group, deleted",
    "tablet list": "id, type, owner, topic, state, generation, cell, partition_count",
    "tablet show": (
        "those of list, partitions, blocked_generation, channels (channel, holds, pool, index_below_bytes, status, "
        "history, soft_barrier, hard_barrier, puts, put_bytes), tables (name, rows), commits, start_ms, key_count, "
        "size_bytes"
    ),
    "tablet restart": "id, generation",
    "tablet move": "id, channel, group, pool, generation",
    "tablet keys": "key, size_bytes, created, inline, shared, blobs",
    "tablet kv": "generation, result (status, value, pairs: key, size_bytes, created, channel, status, value)",
    "bench": "phase, records, mb, seconds, records_per_s, mb_per_s, p50_ms, p99_ms",
    "doctor": (
        "directory, healthy, checked (kind: count), damages, harmless, findings (weight, check, where, what, cure)"
    ),
    "crashtest": "seed, kills, records",
}
"""The tests of each command compare them with what it prints."""
WITHOUT_BROKER = {"doctor", "crashtest"}
"""Commands that ask no broker: one looks into a directory, one starts its own."""


def commands() -> dict[str, Any]:
    """Every command but `serve`, by its full name."""
    found: dict[str, Any] = {}
    for name, command in _children(get_command(app)).items():
        below = {f"{name} {each}": child for each, child in _children(command).items()}
        found |= below or {name: command}
    del found["serve"]
    return found


def cli_page() -> str:
    """The whole page."""
    return _HEAD + "\n".join(_lines()) + "\n"


def _children(command: Any) -> dict[str, Any]:
    return dict(getattr(command, "commands", {}))


def _lines() -> Iterator[str]:
    for name in commands():
        yield f"| `{name}` | {KEYS[name]} |"
    for name, command in commands().items():
        yield f"\n## pqbroker {name}\n"
        yield str(command.help)
        yield f"\n```sh\n{command.epilog.removeprefix('Example: ')}\n```\n"
        yield "| | |"
        yield "|---|---|"
        for parameter in command.params:
            yield f"| `{_written(parameter)}` | {_meaning(parameter)} |"


def _written(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"{parameter.metavar}{'...' if parameter.nargs != 1 else ''}"
    names = ", ".join(sorted(parameter.opts, reverse=True))
    return str(names) if parameter.is_flag else f"{names} {_value(parameter)}"


def _value(parameter: Any) -> str:
    choices = parameter.type_descriptor.choices
    if choices:
        return "\\|".join(str(choice.value) for choice in choices)
    return str(parameter.metavar or "COUNT")


def _meaning(parameter: Any) -> str:
    default = parameter.default
    if parameter.param_type_name == "argument" or default in (None, False, []):
        return str(parameter.help)
    return f"{parameter.help} Default `{getattr(default, 'value', default)}`."


if __name__ == "__main__":
    PAGE.write_text(cli_page(), encoding="utf-8")

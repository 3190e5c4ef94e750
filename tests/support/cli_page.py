"""Writes docs/cli.md from the commands: `python -m tests.support.cli_page`."""

from collections.abc import Iterator
from pathlib import Path

from pqbroker.cli.app import COMMANDS, find_family, is_single
from pqbroker.cli.command import Command
from pqbroker.cli.help_text import meaning, shown, written

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"

_HEAD = """\
# Commands

`pqbroker serve` is the broker; the other commands are mostly clients of one. The page is written from the commands
(`python -m tests.support.cli_page`). `pqbroker`, `pqbroker topic` and other groups of commands, given alone, list
their commands; `--help` explains one.

## Which broker

Commands speak Kafka's protocol with any broker, pqbroker or Apache Kafka. The broker is at `127.0.0.1:9092`, unless
`--broker HOST:PORT` or `PQBROKER_BROKER` names another (several with commas; the port is 9092 unless given). If a
broker does not serve what a command needs, the command says so. `doctor`, `restore`, `crashtest`, `certificate` and
`profile` need no broker.

`tablet`, `table`, `queue`, `transaction`, `features`, `token`, `cell`, `bundle`, `get`, `list`, `exists`, `set`, `sql`,
`backup`, `topic clean`, `acl needs`, `cluster connections` and `cluster restart` are for pqbroker only, and use HTTP.
The address is `--http HOST:PORT` or `PQBROKER_HTTP`, else the one that the broker of `PQBROKER_BROKER` names
(`pqbroker.advertised.http`), else `127.0.0.1:8092`. It must be of the same cluster. Passwords are sent only to hosts
that you have named.

**Security**: `--command-config FILE` or `PQBROKER_COMMAND_CONFIG` is a `client.properties` of Kafka; `--http
https://HOST:PORT` uses its certificates too. See [security](security.md).

**Profiles**: a profile saves a cluster under a name. `pqbroker profile add prod --broker broker.example:9093` makes
one; use it with `--profile prod`, or with `pqbroker profile use prod` for all later commands. A profile has the
addresses, the path of a `--command-config` file and a user, never a password; profiles are stored in
`~/.config/pqbroker/profiles.json` (or below `XDG_CONFIG_HOME`), which only you can read. The first of these counts:

1. the options `--profile`, or `--broker` and `--http`;
2. `PQBROKER_BROKER` and `PQBROKER_HTTP`;
3. `PQBROKER_PROFILE`;
4. the profile in use;
5. `127.0.0.1`.

With a profile `PQBROKER_COMMAND_CONFIG` and `PQBROKER_USER` are ignored; the options count. `--profile none` uses no
profile. `pqbroker profile show` says which one counts and why; errors, questions before something is deleted, and
`cluster health` name it. `pqbroker-pipeline` uses profiles too, with a login from the file of `--command-config`.

## Output and exit status

- `--json` prints one object a line, with the keys of the table below; without it there are tables for people.
  `NO_COLOR` turns colours off.
- Exit status: 0 done, 1 failed or refused, 2 wrong input. The reason is on standard error; after wrong input also the
  right form. On a terminal progress is shown on standard error too, unless records are printed there.
- Commands that delete ask first; `--yes` is for scripts.
- While a command waits for a broker it says so on standard error within two seconds. It waits at most 5 s for a
  connection, 10 s for the first answer, and 60 s for later ones. If the broker is gone, `produce`, `consume` and
  `bench` wait 60 s for it and then continue; `consume --follow` waits for ever. If a broker acknowledges nothing for
  30 s, for example because its disk is full, `produce` and `bench` end with its reason. `topic clean --wait` ends after
  `--timeout`.
- `pqbroker completion bash` (`zsh`, `fish`) prints what makes your shell complete commands, options, topics and groups.

## Positions and records

- A *position* is `beginning` (`earliest`), `end` (`latest`), an offset (`42`), a time (`2026-01-31T12:00`, local unless
  it ends in `Z` or `+02:00`) or an age (`90s`, `15m`, `2h`, `7d`). A time means the first record at or after it.
- In JSON a record's key, value and headers are texts if they are UTF-8, else `{"base64": "..."}`, as over HTTP.
  `pqbroker consume --json A | pqbroker produce --json B` copies records exactly, with headers, nulls and timestamps,
  into the partitions with the same numbers. `produce` also takes `{"json": ...}` for a JSON document.

## Keys of JSON

| command | keys of its JSON |
|---|---|
"""

_FED = (
    "table, path, topic, state, reason (code, message, cure), lag, dead_letter_count, dead_letter_topic, columns, "
    "created, partitions (partition, offset, end_offset, lag), dead_letters (partition, offset, reason)"
)
_TRANSACTIONAL_ID = (
    "name, state, producer_id, producer_epoch, timeout_ms, started, changed, partition_count, groups"
)
_TRANSACTION = (
    "transaction, state, principal, start_timestamp, started, timeout_ms, expires, cause, commit_timestamp, "
    "transactional_id; times in milliseconds since 1970"
)
_UNFINISHED = (
    "transaction, what, participant (table, tablet_index, tablet_id, cell), home, since, waits_for, rows, bytes"
)
_PROFILE = "profile, broker, http, command_config, user, in_use"
_RESOLVED = "transaction, outcome, timestamp, home, resolved, principal, home_says"
KEYS = {
    "table materialize": _FED,
    "table materializations": (
        "table, path, topic, state, reason (code, message, cure), lag, dead_letter_count, dead_letter_topic; of one "
        "table the keys of `table materialize`"
    ),
    "table pause-materialization": "as `table materialize`",
    "table resume-materialization": "as `table materialize`",
    "table drop-materialization": "table, dropped",
    "profile add": _PROFILE,
    "profile use": "profile, in_use",
    "profile list": _PROFILE,
    "profile show": f"{_PROFILE}, chosen_by",
    "profile remove": "profile, removed",
    "user add": "user, added",
    "user password": "user, changed",
    "user list": "user, mechanisms (iterations by mechanism)",
    "user remove": "user, removed",
    "certificate": "file",
    "token create": "id, user, note, created, expires, token",
    "token list": "id, user, note, created, expires",
    "token revoke": "id, revoked",
    "topic create": "topic, partitions",
    "topic list": "topic, partitions, replicas, records, bytes",
    "topic describe": (
        "topic, partitions (partition, leader, leader_epoch, replicas, in_sync, start, end, records), configs"
    ),
    "topic grow": "topic, partitions, before",
    "topic analyze": (
        "topic, skew, partitions (partition, records, bytes, records_per_s, record_bytes, batch_records, batch_bytes, "
        "codec)"
    ),
    "sql": "the columns of the query; with `--csv`, `--arrow` and `--explain` none",
    "topic export": "topic, file, records, bytes",
    "topic configs": "topic, configs (name: value, source)",
    "topic clean": (
        "topic, dry_run, partitions (partition, is_cleaned, bodies, windows, size_bytes, dirty_bytes, dirty_ratio, "
        "head_bytes, text), with --wait passes (those of `GET /v1/cleaner`)"
    ),
    "topic trim": "topic, partitions (partition, before, start, deleted)",
    "topic delete": "topic, deleted",
    "produce": "on standard error: topic, records, bytes, seconds, partitions (partition, first, last)",
    "consume": "topic, partition, offset, timestamp, key, value, headers (key, value)",
    "group list": "group, state, protocol_type, type",
    "group describe": (
        "group, type, state, protocol, epoch, target_epoch, members (member, client, host, partitions; of the "
        "consumer protocol epoch, assigned, target), "
        "offsets (topic, partition, offset, end, lag, member, client, host)"
    ),
    "group reset": "group, dry_run, offsets (topic, partition, before, offset)",
    "group delete": "group, deleted",
    "acl add": "permission, principal, operation, kind, name, pattern, host",
    "acl list": "those of `acl add`",
    "acl remove": "those of `acl add`",
    "quota list": "entity (user, client-id, ip), quotas (name: value)",
    "quota set": "those of `quota list`",
    "quota remove": "those of `quota list`, each value null",
    "acl needs": "apis (request, needs), routes (request, needs)",
    "cluster info": "cluster, nodes (node, host, port, rack, controller), topics, partitions",
    "cluster health": (
        "broker, profile, healthy, partitions, offline, behind, status, "
        "conditions (kind, severity, place, since, affects, cause, cure)"
    ),
    "cluster settings": "node, settings (name: value, source)",
    "cluster restart": "state (done, failed, running), nodes, restarted (their numbers), failure",
    "cluster connections": (
        "id, client_id, address, listener, principal, apis, bytes_in, bytes_out, idle_ms, requests, begun, busy_ms"
    ),
    "top": (
        "topics (topic, partitions, records, size, records_per_s, bytes_per_s), "
        "groups (group, state, members, lag, read_per_s); of a pqbroker that is reached over HTTP passes (topic, "
        "partition, reason, begun_ms, bytes_read, bytes_written, bytes_read_per_s), status, conditions as in "
        "`cluster health`"
    ),
    "tablet list": "id, type, owner, topic, state, generation, cell, partition_count",
    "tablet show": (
        "those of list, partitions, blocked_generation, channels (channel, holds, pool, index_below_bytes, status, "
        "history, soft_barrier, hard_barrier, puts, put_bytes), row_sets (name, rows), tables, commits, start_ms, "
        "key_count, size_bytes"
    ),
    "tablet restart": "id, generation",
    "tablet move": "id, channel, pool, generation, group",
    "tablet keys": "key, size_bytes, created, inline, shared, blobs",
    "tablet kv": "generation, result (status, value, pairs: key, size_bytes, created, channel, status, value)",
    "table create": (
        "name, path, dynamic, sorted, tablet_count, state, bundle, schema, formats, attributes, attributes_set, "
        "mounted_attributes; sorted: pivot_keys"
    ),
    "table list": "name, path, dynamic, sorted, tablet_count, state, bundle",
    "table describe": (
        "those of create, tablets (index, tablet_id, state, trimmed_row_count, flushed_row_count, total_row_count, "
        "cell_id, home_cell_id, mounted_attributes, statistics; sorted: pivot_key instead of the row counts)"
    ),
    "table insert": "rows, data_weight; sorted: rows, timestamp",
    "table lookup": "the columns of the table",
    "table delete-rows": "rows, timestamp",
    "table alter": "those of create",
    "table select": "$tablet_index, $row_index, and the columns; with --raw timestamp_ms, key, value, headers",
    "table trim": "tablet_index, trimmed_row_count",
    "table drop": "table, deleted",
    "table mount": "those of list",
    "table unmount": "those of list",
    "table freeze": "those of list",
    "table unfreeze": "those of list",
    "table remount": "those of create",
    "table reshard": "those of list; sorted: copied_bytes, rewritten_bytes, seconds",
    "table inside": (
        "those of list, node, flushed_rows, flushed_bytes, rewritten_bytes, amplification, running, ended, "
        "tablets; with `--tablet`: those of a tablet, eden, partitions, chunks"
    ),
    "table compact": "path, forced_compaction_revision, estimate",
    "table explain-compaction": "those of list, task_count, tasks, balance, left_out, rests, node_tasks",
    "queue list": "name, path, tablet_count, is_table, consumers (consumer, vital), auto_trim_config",
    "queue describe": (
        "those of list, places (by consumer: tablet_index, offset, first_row_index, end_row_index, disposition, "
        "unread_row_count, committed)"
    ),
    "queue register": "those of list",
    "queue unregister": "queue, consumer, registered",
    "queue pull": "$tablet_index, $row_index, and the columns; of a topic without a schema those of its records",
    "queue advance": "consumer, tablet_index, old_offset, new_offset",
    "queue auto-trim": "those of list",
    "queue sessions": "producer, session, epoch, sequence_number, user_meta, written",
    "queue take-session": "those of sessions",
    "queue end-session": "queue, producer, session, ended",
    "queue push": "rows, skipped, last_sequence_number",
    "transaction list": f"{_TRANSACTION}; with --unfinished {_UNFINISHED}; with --resolved {_RESOLVED}; "
    f"with --kafka {_TRANSACTIONAL_ID}",
    "transaction describe": "as `transaction list`; with --kafka also topics (topic, partitions), "
    "offsets (group, topic, partition, offset) and cell",
    "transaction resolve": (
        "transaction, outcome, timestamp, dry_run, home, waits_for, known (committed, timestamp), "
        "participants (participant, since, bytes), left"
    ),
    "transaction abort": "transaction, aborted",
    "features list": "name, least, greatest, level",
    "features upgrade": "those of list",
    "features downgrade": "those of list",
    "cell list": "id, bundle, health, node, generation, tablets, cause",
    "cell create": "those of list",
    "cell remove": "cell, removed",
    "cell move": "those of list",
    "bundle list": "name, options, options_without_effect, node_tag_filter, health, cells",
    "bundle create": "those of list",
    "bundle set": "those of list",
    "bundle remove": "bundle, removed",
    "get": "the value on one line",
    "list": "name",
    "set": "the value on one line",
    "exists": "true or false",
    "bench": "phase, records, mb, seconds, records_per_s, mb_per_s, p50_ms, p99_ms",
    "completion": "a script, no JSON",
    "backup": "cell, directory, commit, files, linked_bytes, copied_bytes",
    "restore": "directory, healthy, checked (kind: count)",
    "doctor": (
        "directory, healthy, checked (kind: count), damages, harmless, findings (weight, check, where, what, cure)"
    ),
    "crashtest": "seed, kills, records, transfers, commits",
}
"""The tests of each command compare them with what it prints."""
FAMILIES_OVER_HTTP = ("tablet ", "table ", "queue ", "transaction ", "features ", "cell ", "bundle ", "token ")
OVER_HTTP = {
    "sql", "get", "list", "exists", "set", "backup", "cluster connections", "cluster restart", "topic clean",
    "acl needs",
}  # fmt: skip
"""Commands beside these families that ask the HTTP address of a broker of ours."""
OVER_BOTH = {"acl remove", "cluster health", "top"}
"""Commands that ask a broker's Kafka address, and that over HTTP where one is given."""
WITHOUT_BROKER = {
    "certificate", "completion", "doctor", "crashtest", "restore", "profile add", "profile use", "profile list",
    "profile show", "profile remove",
}  # fmt: skip
"""Commands that ask no broker: they print a script, write files, read a directory, or start their own."""


def commands() -> dict[str, Command]:
    """Every command but `serve`, by its full name."""
    found: dict[str, Command] = {}
    for name in COMMANDS:
        family = find_family(name)
        below = {f"{name} {each}": one for each, one in family.commands.items() if not one.is_hidden}
        found |= family.commands if is_single(name, family) else below
    return found


def cli_page() -> str:
    """The whole page."""
    return _HEAD + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    for name in commands():
        yield f"| `{name}` | {KEYS[name]} |"
    for name, command in commands().items():
        yield f"\n## pqbroker {name}\n"
        yield command.help
        yield f"\n```sh\n{command.example}\n```\n"
        yield "| | |"
        yield "|---|---|"
        for parameter in shown(command):
            yield f"| `{_cell(written(parameter))}` | {_cell(meaning(parameter))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(cli_page(), encoding="utf-8")

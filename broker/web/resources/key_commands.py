"""Commands of a KV tablet over HTTP (semantics B.1): a request reads with one command, or changes with several at once.

Reading is open on every KV tablet. Changing is for test brokers (`pqbroker.test.door`), and there for keys that
begin with `u`: the others are the topic's, whose partitions would no longer be what is stored.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.web.resources.contents import CONTENT, TIMESTAMP, read
from pqbroker.broker.web.resources.keys import parse_key, show_key
from pqbroker.broker.web.resources.tablets import find_kv, node_with
from pqbroker.broker.web.routing.problems import Problem, bad_request
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, Schema, array_of, nullable, object_of
from pqbroker.pq.log.keys import USERS
from pqbroker.protocol.record_json import show_content
from pqbroker.storage.engine import Buffer
from pqbroker.storage.kv.changing_values import execute_patching
from pqbroker.storage.kv.commands import (
    EXTRA_MAX,
    INLINE,
    MAIN,
    CheckGeneration,
    Command,
    Concat,
    CopyRange,
    DeleteRange,
    Diff,
    GenerationMismatch,
    IncrementGeneration,
    KeyMissing,
    KeyRange,
    KeyValueError,
    Patch,
    Piece,
    Rename,
    ValueChanged,
    Write,
)
from pqbroker.storage.kv.reads import Pair, read_range, read_value
from pqbroker.storage.kv.tablet import KeyValueTablet

_USERS_END = b"v"
_JSON_PAIR_BYTES = 100
"""Counted for each pair that an answer lists: so at most about as many as pqbroker.http.items.max."""

_BOOLEAN: Schema = {"type": "boolean"}
_CHANNEL: Schema = {"type": "integer", "minimum": MAIN, "maximum": INLINE}
_RANGE: Mapping[str, Schema] = {"from": TEXT, "include_from": _BOOLEAN, "to": TEXT, "include_to": _BOOLEAN}
_INPUT: Schema = {**object_of({"value": CONTENT}), "type": ["string", "object"]}
"""Input of a Concat: a key, or bytes of its own."""
_READS: Mapping[str, Schema] = {
    "read": object_of({"key": TEXT}, {"offset": COUNT, "size": COUNT}),
    "read_range": object_of({}, {**_RANGE, "include_data": _BOOLEAN, "limit_bytes": COUNT}),
    "get_status": object_of({}, {"channel": {**_CHANNEL, "maximum": EXTRA_MAX}}),
}
_CHANGES: Mapping[str, Schema] = {
    "write": object_of(
        {"key": TEXT, "value": CONTENT},
        {"channel": _CHANNEL, "created": TIMESTAMP, "autoselect": array_of(_CHANNEL)},
    ),
    "delete_range": object_of({"from": TEXT, "to": TEXT}, {"include_from": _BOOLEAN, "include_to": _BOOLEAN}),
    "rename": object_of({"old": TEXT, "new": TEXT}),
    "copy_range": object_of(
        {"from": TEXT, "to": TEXT, "prefix_to_remove": TEXT, "prefix_to_add": TEXT},
        {"include_from": _BOOLEAN, "include_to": _BOOLEAN},
    ),
    "concat": object_of({"inputs": array_of(_INPUT), "output": TEXT}, {"keep_inputs": _BOOLEAN}),
    "patch": object_of(
        {"original": TEXT, "patched": TEXT, "diffs": array_of(object_of({"offset": COUNT, "value": CONTENT}))},
        {"channel": _CHANNEL},
    ),
    "increment_generation": object_of({}),
}  # fmt: skip
_COMMAND = object_of({}, {**_READS, **_CHANGES})
_PAIR = object_of(
    {
        "key": TEXT, "size_bytes": COUNT, "created": COUNT, "channel": COUNT, "status": TEXT,
        "value": CONTENT,
    }
)  # fmt: skip
_RESULT = nullable(object_of({"status": TEXT}, {"value": CONTENT, "pairs": array_of(_PAIR)}))


async def run(call: Call) -> Any:
    tablet = find_kv(call, call.path["tablet"])
    commands = [_parse(item, f"body.commands[{number}]") for number, item in enumerate(call.body["commands"])]
    most = call.node.settings.http_items_max
    if not 1 <= len(commands) <= most:
        raise bad_request(f"{len(commands)} commands; give 1 to {most} (pqbroker.http.items.max)")
    names = {name for name, _ in commands}
    if names & _READS.keys():
        if len(commands) > 1:
            raise bad_request("a command that reads stands alone; give one of them, or commands that change")
        return {"generation": tablet.user_generation, "result": await _read(call, tablet, *commands[0])}
    call.check_test_broker("commands that change keys")
    changes = [_CHANGE[name](fields) for name, fields in commands]
    if (generation := call.body.get("generation")) is not None:
        changes.insert(0, CheckGeneration(generation))
    try:
        await execute_patching(tablet, changes)
    except KeyValueError as refusal:
        raise _problem(refusal) from None
    return {"generation": tablet.user_generation, "result": None}


def _parse(item: Mapping[str, Any], where: str) -> tuple[str, Mapping[str, Any]]:
    if len(item) != 1:
        raise bad_request(f"{where} names {len(item)} commands; give one, such as {{\"read\": {{\"key\": \"…\"}}}}")
    ((name, fields),) = item.items()
    return name, fields


async def _read(call: Call, tablet: KeyValueTablet, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    answer_bytes = call.node.settings.http_answer_bytes_max
    try:
        if name == "get_status":
            return {"status": tablet.status(fields.get("channel", MAIN)).name.lower()}
        if name == "read":
            key = parse_key(fields["key"], "key")
            size = fields.get("size", 0)
            value = await read_value(tablet, key, fields.get("offset", 0), size, bytes_max=answer_bytes)
            return {"status": value.status.value, "value": _shown(value.buffers)}
        bytes_max = min(fields.get("limit_bytes", answer_bytes), answer_bytes)
        bytes_max = min(bytes_max, _JSON_PAIR_BYTES * call.node.settings.http_items_max)
        has_data = fields.get("include_data", False)
        page = await read_range(tablet, _range(fields), with_values=has_data, bytes_max=bytes_max)
    except KeyValueError as refusal:
        raise _problem(refusal) from None
    return {"status": page.status.value, "pairs": [_pair(pair) for pair in page.pairs]}


def _range(fields: Mapping[str, Any]) -> KeyRange:
    """Return a range of keys as the semantics have it: its ends are in the range only when the fields say so."""
    hi = parse_key(fields["to"], "to") if "to" in fields else None
    lo = parse_key(fields["from"], "from") if "from" in fields else b""
    return KeyRange(lo, fields.get("include_from", not lo), hi, fields.get("include_to", False))


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "key": show_key(pair.key),
        "size_bytes": pair.size,
        "created": pair.created_ms,
        "channel": pair.channel,
        "status": pair.status.value,
        "value": _shown(pair.buffers) if pair.buffers else None,
    }


def _shown(buffers: Sequence[Buffer]) -> Any:
    return show_content(b"".join(buffers))


def _own_key(text: str, where: str) -> bytes:
    key = parse_key(text, where)
    if not key.startswith(USERS):
        raise bad_request(f"{where} is {text[:100]!r}; keys that may be changed begin with `u`: others are the topic's")
    return key


def _own_range(fields: Mapping[str, Any]) -> KeyRange:
    within = _range(fields)
    assert within.hi is not None
    ends_behind = within.hi > _USERS_END or (within.hi == _USERS_END and within.include_hi)
    if not USERS <= within.lo <= _USERS_END or ends_behind:
        raise bad_request("the range holds keys of the topic; keys that may be changed begin with `u`: from u to v")
    return within


def _write(fields: Mapping[str, Any]) -> Write:
    value = _content(fields["value"], "write.value")
    return Write(
        _own_key(fields["key"], "write.key"), (value,), len(value), fields.get("channel", MAIN), fields.get("created"),
        tuple(fields.get("autoselect", ())),
    )  # fmt: skip


def _delete(fields: Mapping[str, Any]) -> DeleteRange:
    within = _own_range(fields)
    return DeleteRange(within.lo, within.include_lo, within.hi, within.include_hi)


def _copy(fields: Mapping[str, Any]) -> CopyRange:
    removed = parse_key(fields["prefix_to_remove"], "copy_range.prefix_to_remove")
    return CopyRange(_own_range(fields), removed, _own_key(fields["prefix_to_add"], "copy_range.prefix_to_add"))


def _concat(fields: Mapping[str, Any]) -> Concat:
    inputs: list[bytes | Piece] = []
    for item in fields["inputs"]:
        if isinstance(item, str):
            inputs.append(_own_key(item, "concat.inputs"))
        else:
            value = _content(item["value"], "concat.inputs.value")
            inputs.append(Piece((value,), len(value)))
    return Concat(tuple(inputs), _own_key(fields["output"], "concat.output"), fields.get("keep_inputs", False))


def _patch(fields: Mapping[str, Any]) -> Patch:
    diffs = [Diff(diff["offset"], _content(diff["value"], "patch.diffs.value")) for diff in fields["diffs"]]
    original, patched = (_own_key(fields[name], f"patch.{name}") for name in ("original", "patched"))
    return Patch(original, patched, diffs, fields.get("channel", MAIN))


def _content(value: Any, where: str) -> bytes:
    content = read(value, where)
    if content is None:
        raise bad_request(f'{where} is null; give text or {{"base64": "…"}}')
    return content


def _problem(refusal: KeyValueError) -> Problem:
    """Return the problem of a refusal; nothing of the request was applied."""
    if isinstance(refusal, KeyMissing):
        return Problem(404, "NO_SUCH_KEY", str(refusal), "GET /v1/tablets/ID/keys lists the keys.")
    if isinstance(refusal, GenerationMismatch):
        return Problem(409, "GENERATION_MISMATCH", str(refusal), "Ask for the generation, and whether you may go on.")
    if isinstance(refusal, ValueChanged):
        return Problem(409, "VALUE_CHANGED", str(refusal), "Read it and try again.")
    return bad_request(str(refusal))


_CHANGE: Mapping[str, Callable[[Mapping[str, Any]], Command | Patch]] = {
    "write": _write,
    "delete_range": _delete,
    "rename": lambda fields: Rename(_own_key(fields["old"], "rename.old"), _own_key(fields["new"], "rename.new")),
    "copy_range": _copy,
    "concat": _concat,
    "patch": _patch,
    "increment_generation": lambda _: IncrementGeneration(),
}

ROUTES = (
    Route(
        "POST", "/v1/tablets/{tablet}/commands",
        "Read a key or a range of a KV tablet; on a test broker change keys, all commands at once or none", run,
        object_of({"generation": COUNT, "result": _RESULT}),
        body=object_of({"commands": array_of(_COMMAND)}, {"generation": COUNT}),
        cluster=AclOperation.ALTER, place=node_with,
    ),
)  # fmt: skip

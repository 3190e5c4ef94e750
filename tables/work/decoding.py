"""Records decoded by the schemas of a registry, which this process asks. It needs none of the columnar libraries."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pqbroker.registry.decoding import TopicDecoders
from pqbroker.tables.work.messages import Bytes, Message

_TOO_LONG = {
    "code": "DECODING_TOO_LONG",
    "reason": "decoding took longer than pqbroker.registry.decoding.ms.max; read fewer records, or raise the setting",
}
_TOO_LARGE = {
    "code": "ANSWER_TOO_LARGE",
    "reason": "the decoded records are larger than pqbroker.http.answer.bytes.max; read fewer, or raise the setting",
}


def decode_records(message: Message) -> bytes:
    """Return a JSON array with an object for each record of a message `decode`: by part, as `TopicDecoders.show`."""
    asked = message.document
    decoders = TopicDecoders(asked["decoding"])
    until_s = time.monotonic() + asked["time_ms"] / 1000
    left = asked["answer_bytes_max"]
    shown: list[str] = []
    for parts in _records(asked["sizes"], message.payload):
        refusal = _TOO_LONG if time.monotonic() >= until_s else _TOO_LARGE if left <= 0 else None
        named = parts.keys() & asked["decoding"]["parts"].keys()
        each = _shown(decoders, parts) if refusal is None else dict.fromkeys(named, refusal)
        shown.append(json.dumps(each))
        left -= len(shown[-1])
    return f"[{','.join(shown)}]".encode()


def _records(sizes: list[list[int | None]], payload: Bytes) -> Iterator[Mapping[str, bytes]]:
    """Yield the parts of each record that are not null, by "key" and "value"."""
    start = 0
    for record in sizes:
        parts = {}
        for part, size in zip(("key", "value"), record, strict=True):
            if size is not None:
                parts[part] = bytes(payload[start : start + size])
                start += size
        yield parts


def _shown(decoders: TopicDecoders, parts: Mapping[str, bytes]) -> dict[str, Any]:
    found = {part: decoders.show(part, content) for part, content in parts.items()}
    return {part: shown for part, shown in found.items() if shown is not None}

"""Records decoded by the schemas of a registry, which this process asks. It needs none of the columnar libraries."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pqbroker.protocol.records import Record
from pqbroker.registry.decoding import TopicDecoders
from pqbroker.registry.undecodable import LARGE_VALUE, Undecodable
from pqbroker.tables.work.messages import Bytes, Message

_TOO_LONG = {
    "code": "DECODING_TOO_LONG",
    "reason": "decoding took longer than pqbroker.registry.decoding.ms.max; read fewer records, or raise the setting",
}
_TOO_LARGE = {
    "code": "ANSWER_TOO_LARGE",
    "reason": "the decoded records are larger than pqbroker.http.answer.bytes.max; read fewer, or raise the setting",
}


class RecordBySchema:
    """A record as a search sees it: a part that a schema decodes is JSON, or the text itself where it is one; any other
    part stays as it is. A part is decoded when it is first looked at."""

    __slots__ = ("_bytes_max", "_decoders", "_record", "_seen", "shown")

    def __init__(self, record: Record, decoders: TopicDecoders, bytes_max: int) -> None:
        """`bytes_max`: a part that takes more as JSON, about, stays as it is."""
        self._record = record
        self._bytes_max = bytes_max
        self._decoders = decoders
        self._seen: dict[str, bytes | None] = {}
        self.shown: dict[str, dict[str, Any]] = {}
        """Parts that were looked at, as `TopicDecoders.show` returns them."""

    @property
    def key(self) -> bytes | None:
        return self._part("key", self._record.key)

    @property
    def value(self) -> bytes | None:
        return self._part("value", self._record.value)

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        return self._record.headers

    @property
    def refusal(self) -> dict[str, Any] | None:
        """Return {code, reason} of a part that was looked at and stays raw; None where all were decoded."""
        return next((each for each in self.shown.values() if "code" in each), None)

    def decode(self) -> None:
        """Decode the parts that were not looked at yet."""
        _ = self.key, self.value

    def _part(self, part: str, content: bytes | None) -> bytes | None:
        if part not in self._seen:
            self._seen[part] = self._decoded(part, content)
        return self._seen[part]

    def _decoded(self, part: str, content: bytes | None) -> bytes | None:
        decoder = self._decoders.find(part)
        if decoder is None or content is None:
            return content
        try:
            decoded = decoder.decode(content)
        except Undecodable as refusal:
            self.shown[part] = refusal.document()  # not the error: its traceback leads back to this record
            return content
        if _exceeds(decoded.value, self._bytes_max):
            reason = f"the {part} takes more than pqbroker.search.decoded.bytes.max = {self._bytes_max} as JSON"
            self.shown[part] = Undecodable(LARGE_VALUE, reason).document()
            return content
        self.shown[part] = decoded.document()
        text = decoded.value if isinstance(decoded.value, str) else decoded.text()
        return text.encode(errors="backslashreplace")


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
        each = _shown(decoders, parts, left) if refusal is None else dict.fromkeys(named, refusal)
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


def _shown(decoders: TopicDecoders, parts: Mapping[str, bytes], bytes_max: int) -> dict[str, Any]:
    """Return by part what is shown of a record; a part that alone is too large stays raw."""
    found = {part: decoders.show(part, content) for part, content in parts.items()}
    return {
        part: _TOO_LARGE if _exceeds(shown.get("content"), bytes_max) else shown
        for part, shown in found.items()
        if shown is not None
    }


def _exceeds(value: Any, bytes_max: int) -> bool:
    """Return True if a value takes more bytes as JSON, about. It is counted before it is written: a few bytes of a
    record may stand for a million names."""
    left = bytes_max
    waiting = [value]
    while waiting and left >= 0:
        each = waiting.pop()
        if isinstance(each, str):
            left -= len(each)
        elif isinstance(each, dict):
            left -= sum(map(len, each)) + _BYTES_OF_FIELD * len(each)
            waiting.extend(each.values())
        elif isinstance(each, list):
            left -= _BYTES_OF_FIELD * len(each)
            waiting.extend(each)
    return left < 0


_BYTES_OF_FIELD = 6
"""Bytes of quotes, signs and a short number."""

"""Random requests from the declared messages: valid ones, repeated ones, ones that lie, and what is no request at all.

The same seed gives the same bytes.
"""

import random
import struct
from collections.abc import Callable
from typing import Any

from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.served import APIS
from pqbroker.protocol.codec import encoder
from pqbroker.protocol.primitives import unsigned_varint
from pqbroker.protocol.schema import BYTES, RECORDS, STRING, UUID, Kind, is_flexible, wire_fields
from tests.broker.conftest import make_batch

REPEATED_BYTES_MAX = 24 << 20
REPEATED_MAX = 1_000_000
NAMES = ["a", "b", "c", "d", "group", "m", "range", "1", "", "retention.ms", "cleanup.policy", "delete", "x" * 300]
NUMBERS = [0, 0, 0, 1, 1, 2, 3, 5, 6, 19, 100, 1000, -1, -1, -2, -3, 32_767]
WAIT_MS = [0, 0, 1, 20]
_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


class Requests:
    """A stream of frames, length and header included."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._batch = bytes(make_batch(b"value", b"another"))
        self._shapes: list[tuple[Callable[[], bytes], int]] = [
            (self._valid, 60), (self._repeated, 12), (self._lying, 14), (self._cut, 8), (self._noise, 4),
            (self._unfinished, 2),
        ]  # fmt: skip
        self.ids: list[bytes] = []
        """Topic ids that may be named."""

    def next(self) -> bytes:
        """The bytes to be sent; an unfinished frame says that more would follow."""
        makers = [maker for maker, _ in self._shapes]
        (make,) = self._random.choices(makers, [weight for _, weight in self._shapes])
        return make()

    def _valid(self) -> bytes:
        api, version = self._api()
        return self._frame(api, version, _encoded(self._value(api.request, version), version))

    def _repeated(self) -> bytes:
        """A request one of whose arrays has an element again and again."""
        api, version = self._api()
        request = self._value(api.request, version)
        places = list(_arrays(request, version))
        if not places:
            return self._valid()
        owner, name, kind = self._random.choice(places)
        item = self._element(kind, version)
        setattr(owner, name, [item])
        once = _encoded(request, version)
        setattr(owner, name, [item, item])
        body = self._again(once, _encoded(request, version), is_flexible(api.key, version))
        return self._frame(api, version, body)

    def _again(self, once: bytes, twice: bytes, flexible: bool) -> bytes:
        """The body with the element that `twice` has once more than `once`, 1 to a million times."""
        size = len(twice) - len(once)
        count_end = next(index for index in range(len(once)) if once[index] != twice[index]) + 1
        count = int(10 ** (self._random.random() ** 3 * 6))
        count = max(1, min(count, REPEATED_MAX, REPEATED_BYTES_MAX // size))
        item, rest = once[count_end : count_end + size], once[count_end + size :]
        if flexible:
            return once[: count_end - 1] + unsigned_varint(count + 1) + item * count + rest
        return once[: count_end - 4] + struct.pack(">i", count) + item * count + rest

    def _lying(self) -> bytes:
        """A request with some bytes changed, counts and lengths among them."""
        api, version = self._api()
        body = bytearray(_encoded(self._value(api.request, version), version))
        for _ in range(self._random.randint(1, 4)):
            if body:
                place = self._random.randrange(len(body))
                lie = self._random.choice([b"\0", b"\x01", b"\x7f", b"\x80", b"\xff", b"\x7f\xff\xff\xff", b"\xff" * 5])
                body[place : place + len(lie)] = lie
        return self._frame(api, version, bytes(body))

    def _cut(self) -> bytes:
        api, version = self._api()
        body = _encoded(self._value(api.request, version), version)
        return self._frame(api, version, body[: self._random.randint(0, len(body))])

    def _unfinished(self) -> bytes:
        """A frame that says it is longer than what comes of it."""
        frame = self._valid()
        claimed = len(frame) - 4 + self._random.choice([1, 100, 100_000, 90 << 20])
        return struct.pack(">i", claimed) + frame[4:]

    def _noise(self) -> bytes:
        """Random bytes, or a length that none may have."""
        if self._random.random() < 0.5:
            size = self._random.choice([-1, 1 << 30, (1 << 31) - 1])
            return struct.pack(">i", size) + self._random.randbytes(8)
        body = self._random.randbytes(self._random.randint(0, 200))
        key, version = self._random.randint(-1, 100), self._random.randint(-1, 20)
        return struct.pack(">ihhi", len(body) + 8, key, version, 1) + body

    def _api(self) -> tuple[Api, int]:
        api = self._random.choice(APIS)
        return api, self._random.randint(api.version_min, api.version_max)

    def _frame(self, api: Api, version: int, body: bytes) -> bytes:
        header = struct.pack(">hhih", api.key, version, 1, 1) + b"c"
        if is_flexible(api.key, version):
            header += b"\0"
        return struct.pack(">i", len(header) + len(body)) + header + body

    def _value(self, declared: type, version: int) -> Any:
        """An instance of a struct."""
        value = declared()
        for item in wire_fields(declared, version):
            if item.is_nullable(version) and self._random.random() < 0.1:
                setattr(value, item.name, None)
            elif item.tag is not None and self._random.random() < 0.8:
                continue
            elif item.name.endswith(("_ms", "timeout_ms")) and isinstance(item.kind, Kind) and item.kind.code == "i":
                setattr(value, item.name, self._random.choice(WAIT_MS))
            else:
                setattr(value, item.name, self._of(item.kind, version))
        return value

    def _of(self, kind: Kind[Any] | type, version: int) -> Any:
        if isinstance(kind, Kind) and kind.element is not None:
            count = self._random.choice([0, 1, 1, 1, 2, 3])
            return [self._element(kind.element, version) for _ in range(count)]
        return self._element(kind, version)

    def _element(self, kind: Kind[Any] | type, version: int) -> Any:
        if not isinstance(kind, Kind):
            return self._value(kind, version)
        if kind is STRING:
            return self._random.choice(NAMES)
        if kind is BYTES:
            return self._random.randbytes(self._random.choice([0, 1, 20, 2000]))
        if kind is RECORDS:
            return memoryview(self._batch if self._random.random() < 0.8 else self._random.randbytes(90))
        if kind is UUID:
            return self._random.choice([bytes(16), self._random.randbytes(16), *self.ids])
        if kind.code == "?":
            return self._random.random() < 0.5
        if kind.code == "d":
            return self._random.random()
        return self._number(_BITS[kind.code])

    def _number(self, bits: int) -> int:
        least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        number = self._random.choice([*NUMBERS, least, most, self._random.randint(least, most)])
        return max(least, min(most, number))


def _arrays(value: Any, version: int) -> Any:
    """Every array in a request: what holds it, its name, and the kind of its elements."""
    for item in wire_fields(type(value), version):
        content = getattr(value, item.name)
        if item.tag is None and isinstance(item.kind, Kind) and item.kind.element is not None:
            yield value, item.name, item.kind.element
            if content and not isinstance(item.kind.element, Kind):
                yield from _arrays(content[0], version)


def _encoded(request: Any, version: int) -> bytes:
    declared: Any = type(request)
    return b"".join(map(bytes, encoder(declared, version)(request)))



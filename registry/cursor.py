"""A place in the bytes of one value, and what the value may still cost."""

from typing import Final

from pqbroker.registry.limits import VALUE_LEVELS_MAX, DecodingLimits
from pqbroker.registry.undecodable import DEEP_VALUE, INVALID_VALUE, LARGE_VALUE, Undecodable
from pqbroker.registry.wire_format import read_varint

_INFINITIES: Final = {float("inf"): "Infinity", float("-inf"): "-Infinity"}


class Budget:
    """The parts and levels that a value may still have. It is used up."""

    __slots__ = ("_most", "levels_left", "parts_left")

    def __init__(self, limits: DecodingLimits) -> None:
        self._most = limits.value_parts_max
        self.parts_left = limits.value_parts_max
        self.levels_left = VALUE_LEVELS_MAX

    def take_parts(self, count: int) -> None:
        """Count fields, elements or entries. Undecodable VALUE_TOO_LARGE."""
        self.parts_left -= count
        if self.parts_left < 0:
            text = f"the value has more than pqbroker.registry.value.parts.max = {self._most} fields and elements"
            raise Undecodable(LARGE_VALUE, text)

    def enter(self) -> None:
        """Begin a record, an array or a map; `leave` ends it. Undecodable VALUE_TOO_DEEP."""
        self.levels_left -= 1
        if self.levels_left < 0:
            raise Undecodable(DEEP_VALUE, f"the value has more than {VALUE_LEVELS_MAX} levels")

    def leave(self) -> None:
        self.levels_left += 1


class Cursor(Budget):
    """Reads Avro's smallest parts."""

    __slots__ = ("_data", "position")

    def __init__(self, data: memoryview, limits: DecodingLimits) -> None:
        super().__init__(limits)
        self._data = data
        self.position = 0

    @property
    def is_at_end(self) -> bool:
        return self.position == len(self._data)

    @property
    def left(self) -> int:
        """Return the bytes that are not read yet."""
        return len(self._data) - self.position

    def take(self, size: int) -> memoryview:
        """The next bytes. Undecodable VALUE_INVALID where the value has fewer, or the size is below 0."""
        end = self.position + size
        if not self.position <= end <= len(self._data):
            text = f"byte {self.position} begins {size} bytes, and the value has {len(self._data)} in all"
            raise Undecodable(INVALID_VALUE, text)
        found = self._data[self.position : end]
        self.position = end
        return found

    def read_long(self) -> int:
        """The next integer; most have one byte."""
        position = self.position
        if position < len(self._data) and (byte := self._data[position]) < 0x80:
            self.position = position + 1
            return (byte >> 1) ^ -(byte & 1)
        found, self.position = read_varint(self._data, position)
        return found if found < 1 << 63 else found - (1 << 64)


def show_float(number: float) -> float | str:
    """Return a number as JSON has it: NaN and the infinities are texts."""
    if number - number == 0:
        return number
    return _INFINITIES.get(number, "NaN")

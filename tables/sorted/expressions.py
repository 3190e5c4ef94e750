"""Key columns that the table fills by an expression over other key columns: `hash(a, b, …) % N`.

A hash as the first key column spreads rows over tablets whose pivots divide its range evenly. Its value is the CRC32C
of the encoded values of the columns (`keys.py`), end to end, modulo N.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from pqbroker.tables.sorted.keys import key_encoder

MODULUS_MAX: Final = 1 << 31
_FORM = re.compile(r"\s*hash\s*\(\s*(?P<columns>[^()]+?)\s*\)\s*%\s*(?P<modulus>[0-9]{1,10})\s*")


class HashExpression(NamedTuple):
    """One expression."""

    columns: tuple[str, ...]
    modulus: int

    @classmethod
    def parse(cls, text: str) -> "HashExpression":
        """Read one. ValueError says what is wanted."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError("give hash(COLUMN, …) % NUMBER")
        columns = tuple(name.strip() for name in found["columns"].split(","))
        modulus = int(found["modulus"])
        if not 1 <= modulus <= MODULUS_MAX:
            raise ValueError(f"give a number from 1 to {MODULUS_MAX}")
        if not all(columns) or len({*columns}) != len(columns):
            raise ValueError("name each column once")
        return cls(columns, modulus)

    @property
    def text(self) -> str:
        """Return it as it is stored and shown."""
        return f"hash({', '.join(self.columns)}) % {self.modulus}"

    def value(self, encoded: bytes) -> int:
        """Return the value of the column, given the encoded values of the columns, end to end."""
        found: int = crc32c(encoded)
        return found % self.modulus


def hash_computer(expression: HashExpression, types: Mapping[str, str]) -> Callable[[Mapping[str, Any]], int]:
    """Return what computes the hash of a row's values, given the types of the columns. ValueError as `key_encoder`."""
    encoders: Sequence[tuple[str, Any]] = [(name, key_encoder([types[name]])) for name in expression.columns]

    def compute(values: Mapping[str, Any]) -> int:
        return expression.value(b"".join([encode((values.get(name),)) for name, encode in encoders]))

    return compute

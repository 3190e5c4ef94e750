"""Facts of a sorted tablet that no chunk and no log entry says; stored as JSON under a key of their own."""

import json
from dataclasses import asdict, dataclass, fields

FACTS_FORMAT = 1


@dataclass(frozen=True, slots=True)
class TabletFacts:
    """Facts, as durable."""

    next_number: int = 1
    """First number that no store, chunk or task of the tablet has had."""
    retained_timestamp: int = 0
    """KeyVersions below may have been cleaned up: a read there is an error."""

    def encode(self) -> bytes:
        return json.dumps({"format": FACTS_FORMAT, **asdict(self)}).encode()

    @classmethod
    def decode(cls, value: bytes) -> "TabletFacts":
        """ValueError for bytes that are none of this version."""
        stored = json.loads(value)
        if not isinstance(stored, dict) or stored.pop("format", None) != FACTS_FORMAT:
            raise ValueError(f"facts of a sorted tablet are {value[:100]!r}; this version reads format {FACTS_FORMAT}")
        known = [field.name for field in fields(cls)]
        if sorted(stored) != sorted(known) or not all(type(number) is int for number in stored.values()):
            raise ValueError(f"facts of a sorted tablet are {value[:100]!r}")
        return cls(**stored)

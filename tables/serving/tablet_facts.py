"""Facts of a sorted tablet that no chunk and no log entry says; stored as JSON under a key of their own."""

import msgspec

FACTS_FORMAT = 1


class TabletFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts, as durable."""

    retained_timestamp: int = 0
    """Versions below may have been cleaned up: a read there is an error."""
    format: int = FACTS_FORMAT

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> "TabletFacts":
        """ValueError for bytes that are none of this version."""
        facts = msgspec.json.decode(value, type=cls)
        if facts.format != FACTS_FORMAT:
            raise ValueError(f"facts of a sorted tablet have format {facts.format}; this version reads {FACTS_FORMAT}")
        return facts

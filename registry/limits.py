"""Limits of schemas and of the values that are read by them. A broker has a setting for each."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

NAME_LETTERS_MAX: Final = 1_024
"""Letters of a name in a schema."""
SCHEMA_LEVELS_MAX: Final = 64
"""Levels of types within one another, as a schema spells them."""
VALUE_LEVELS_MAX: Final = 64
"""Levels of a value that a recursive schema allows."""
REFERENCES_MAX: Final = 100
"""Schemas that a schema refers to, and so on."""


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """Limits of one schema and of one value."""

    timeout_ms: int = 5_000
    """Time of all requests to the registry for one schema."""
    schema_bytes_max: int = 256 << 10
    """Bytes of a schema together with those that it refers to."""
    schema_types_max: int = 10_000
    """Types, fields, branches and symbols of a schema together with those that it refers to."""
    value_parts_max: int = 1_000_000
    """Fields, elements and entries of one value."""
    schemas_max: int = 1_000
    """Schemas and failures that are remembered; the one used longest ago is forgotten first."""
    failure_ms: int = 10_000
    """Time that a failure is remembered before the registry is asked again."""

    def document(self) -> dict[str, int]:
        """Return the limits as a message to a worker has them."""
        return asdict(self)


def read_limits(document: Mapping[str, Any]) -> DecodingLimits:
    """Return the limits of which `DecodingLimits.document` gave this."""
    return DecodingLimits(**document)

"""The job `infer`: a schema for `land --schema` from the newest records of a topic. It needs no Spark."""

import json
from collections.abc import Callable, Sequence

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.json_types import FIELDS_MAX, Fields, TooManyFields, merged, schema_sql, type_of
from pqbroker.pipeline.looking import newest_values

_DEPTH_MAX = 100
"""Levels of a value; one with more is no JSON here."""


def infer(broker: str, topic: str, sample: int, say: Callable[[str], None]) -> str:
    """The schema in SQL; a field that every object has is NOT NULL. JobError without objects in the sample."""
    values = newest_values(broker, topic, sample)
    objects, found = 0, Fields()
    try:
        for value in values:
            one = _object_type(value)
            if one is not None:
                objects += 1
                both = merged(found, one)
                assert isinstance(both, Fields), "two objects are an object"
                found = both
    except TooManyFields:
        raise JobError(
            f"values of topic {topic} have more than {FIELDS_MAX:,} different fields: names of fields are data there; "
            "write a schema by hand, with a MAP"
        ) from None
    schema = schema_sql(found, objects)
    if not schema:
        raise JobError(f"topic {topic} has no JSON objects among its newest {len(values):,} records")
    say(f"{objects:,} of the {len(values):,} newest values are JSON objects")
    return schema


def _object_type(value: bytes) -> Fields | None:
    """Return the type of a value that is one JSON object; None for others."""
    try:
        document = json.loads(value.decode())
        if not isinstance(document, dict) or _is_deep([document]):
            return None
    except (ValueError, RecursionError):
        return None
    found = type_of(document)
    assert isinstance(found, Fields), "an object has fields"
    return found


def _is_deep(level: Sequence[object]) -> bool:
    for _ in range(_DEPTH_MAX):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
        ]
        if not level:
            return False
    return True

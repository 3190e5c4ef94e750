"""Terms of following a topic: times, and ids of events, which say where another request continues."""

import re
from collections.abc import Mapping
from typing import Final

from pqbroker.broker.web.routing.problems import bad_request

HEARTBEAT_S: Final = 15.0
GROWTH_LOOK_S: Final = 1.0
"""Time between two looks for partitions that are new, or served again."""
IDS_MAX: Final = 100
"""Partitions up to which events have ids: an id names them all."""
_OFFSET: Final = re.compile(r"(\d{1,9}):(\d{1,19})", re.ASCII)


def event_id(offsets: Mapping[int, int]) -> str:
    """Return the id of an event behind which a reader stands at these offsets; empty where it has none."""
    if len(offsets) > IDS_MAX:
        return ""
    return ",".join(f"{index}:{offset}" for index, offset in sorted(offsets.items()))


def read_event_id(text: str) -> dict[int, int]:
    """Return offsets by partition. Problem."""
    offsets: dict[int, int] = {}
    for item in filter(None, text.split(",")):
        found = _OFFSET.fullmatch(item)
        if found is None:
            raise bad_request(f"offsets has {item[:100]!r}; give PARTITION:OFFSET,… as the id of an event has them")
        offsets[int(found[1])] = int(found[2])
    return offsets

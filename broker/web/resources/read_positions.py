"""Positions where reading a topic begins, as a request names them: `from`, in the words of the command line."""

from datetime import UTC

from pqbroker.broker.web.resources.contents import TIMESTAMP
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import Call, Parameter
from pqbroker.broker.web.routing.schemas import TEXT
from pqbroker.pq.reading.query import READ_UNCOMMITTED, Isolation, visible_end
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.protocol.positions import EARLIEST, LATEST, Position, PositionError, parse_position

FROM = Parameter(
    "from", TEXT,
    "Begin here: beginning, end, an offset (42), a time (2026-01-31T12:00, UTC unless it says another zone; write + as "
    "%2B) or an age (90s, 15m, 2h, 7d).", example="2h",
)  # fmt: skip


OFFSET = Parameter("offset", {"type": "integer"}, "Begin here; -10 means ten before the end.", example=-10)
TIME = Parameter("time", TIMESTAMP, "Begin with the first record at or after this time, in ms since 1970.")
START = (FROM, OFFSET, TIME)
"""One of them at most; without one reading begins at the beginning."""


def first_position(call: Call) -> Position:
    """Return where a request with START wants to begin. Raise Problem."""
    given = [parameter.name for parameter in START if parameter.name in call.query]
    if len(given) > 1:
        raise bad_request(f"{' and '.join(given)} are given; give one of them")
    if "offset" in call.query:
        return Position("offset", offset=call.query["offset"])
    if "time" in call.query:
        return Position("time", timestamp=call.query["time"])
    return read_position(call, call.query.get("from", "beginning"), "from")


def read_position(call: Call, text: str, where: str) -> Position:
    """Problem, which names the field and the forms there are."""
    try:
        return parse_position(text, call.node.clock(), UTC)
    except PositionError as error:
        raise bad_request(f"{where} is {error}") from None


async def offset_in(
    partition: PartitionServer, position: Position, isolation: Isolation = READ_UNCOMMITTED, *, is_clamped: bool = False
) -> int:
    """The offset in a partition; a time that no record reaches is the end, as far as a reader of `isolation` sees.

    KafkaError OFFSET_OUT_OF_RANGE for an offset outside, unless `is_clamped`, and as from reading.
    """
    start, end = partition.start_offset, visible_end(partition.state, isolation)
    offset = position.offset
    if offset is not None:
        if offset < 0:
            return max(start, end + offset)
        if not start <= offset <= end and not is_clamped:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is outside [{start}, {end}]")
        return min(max(offset, start), end)
    if position.timestamp in (EARLIEST, LATEST):
        return start if position.timestamp == EARLIEST else end
    found = await partition.times.first_at(position.timestamp, isolation)
    return visible_end(partition.state, isolation) if found is None else found.offset

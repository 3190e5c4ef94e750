"""Recent observations of the node: its main figures for fifteen minutes, and the last lines of its log."""

from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.log_tail import LINES_MAX
from pqbroker.broker.ground.series import COUNTERS, GAUGES, PERIOD_S
from pqbroker.broker.web.resources.contents import TIMESTAMP
from pqbroker.broker.web.routing.every_node import NODE, named_node
from pqbroker.broker.web.routing.problems import bad_request
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, array_of, object_of

_NUMBER = {"type": "number"}
_LEVELS = ("info", "warning", "error", "critical")


async def series(call: Call) -> Any:
    points = call.node.series.after(call.query.get("after", 0))
    return {
        "cell": call.cell.name,
        "node": call.node.settings.node_id,
        "period_ms": int(1000 * PERIOD_S),
        "times": [time_ms for time_ms, _ in points],
        "series": [
            {"name": name, "type": kind, "values": [figures[name] for _, figures in points]}
            for kind, names in (("counter", COUNTERS), ("gauge", GAUGES))
            for name in names
        ],
    }


async def log_lines(call: Call) -> Any:
    """The latest of the lines asked for, in their order."""
    named_node(call)
    level = call.query.get("level", _LEVELS[0])
    if level not in _LEVELS:
        raise bad_request(f"level is {level[:100]!r}; give one of {', '.join(_LEVELS)}")
    wanted = _LEVELS[_LEVELS.index(level) :]
    lines = [line for line in call.node.log_tail.after(call.query.get("after", 0)) if line.level in wanted]
    return {
        "cell": call.cell.name,
        "node": call.node.settings.node_id,
        "lines": [
            {
                "number": line.number, "time": line.time_ms, "level": line.level, "logger": line.logger,
                "message": line.message,
            }
            for line in lines[-call.limit() :]
        ],
    }  # fmt: skip


_LINE = object_of({"number": COUNT, "time": TIMESTAMP, "level": TEXT, "logger": TEXT, "message": TEXT})

ROUTES = (
    Route(
        "GET", "/v1/series",
        "Show the main figures of the last fifteen minutes, a point every five seconds; counters rise from the start",
        series,
        object_of(
            {
                "cell": TEXT, "node": COUNT, "period_ms": COUNT, "times": array_of(TIMESTAMP),
                "series": array_of(object_of({"name": TEXT, "type": TEXT, "values": array_of(_NUMBER)})),
            }
        ),
        (Parameter("after", TIMESTAMP, "Show points later than this time alone, in ms since 1970."),),
        cluster=AclOperation.DESCRIBE,
        example={
            "cell": "0", "node": 1, "period_ms": 5000, "times": [1767225600000, 1767225605000],
            "series": [{"name": "bytes_in", "type": "counter", "values": [0, 51200]}],
        },
    ),
    Route(
        "GET", "/v1/log",
        f"Show the last lines of the node's log, the latest last; it keeps {LINES_MAX} of level info and above",
        log_lines,
        object_of({"cell": TEXT, "node": COUNT, "lines": array_of(_LINE)}),
        (
            Parameter("level", TEXT, f"Show lines of this level and above: {', '.join(_LEVELS)}.", example="warning"),
            Parameter("after", COUNT, "Show lines behind this number alone."),
            LIMIT, NODE,
        ),
        cluster=AclOperation.DESCRIBE, place=named_node,
        example={
            "cell": "0", "node": 1,
            "lines": [
                {
                    "number": 7, "time": 1767225600000, "level": "warning",
                    "logger": "pqbroker.broker.services.cells.cell_owner",
                    "message": "the cell is open again, generation 4",
                }
            ],
        },
    ),
)  # fmt: skip

"""The door for tests: faults of requests on cue, and a clock that tests move. The store's are in `faults`.

Nothing here exists on a broker that is not for tests (`pqbroker.test.door`).
"""

import difflib
from collections.abc import Sequence
from typing import Any

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.cues.cues import Cues, FaultsOnCue
from pqbroker.broker.ground.cues.faults import Act, Cue, Fault, NamedApi
from pqbroker.broker.web.routing.problems import Problem, bad_request
from pqbroker.broker.web.routing.routes import Call, Route
from pqbroker.broker.web.routing.schemas import COUNT, SHOWN, TEXT, array_of, nullable, object_of
from pqbroker.protocol.errors import ErrorCode

_BOOLEAN = {"type": "boolean"}
_POSITIVE = {"type": "integer", "minimum": 1}
_FAULT = object_of(
    {
        "fault": COUNT, "act": TEXT, "api": nullable(TEXT), "error": nullable(TEXT), "topic": nullable(TEXT),
        "partition": nullable(COUNT), "left": nullable(COUNT), "holding": COUNT,
    }
)  # fmt: skip
_CLOCK = object_of({"now_ms": COUNT, "ahead_ms": COUNT})
_HOLDING = (Act.DELAY, Act.PAUSE)


def cues_of(call: Call) -> Cues:
    """Problem unless the broker is for tests."""
    if call.node.cues is None:
        raise Problem(
            404, "NO_TEST_DOOR", "paths under /v1/test exist only on a broker with pqbroker.test.door=true",
            "Start one with --set pqbroker.test.door=true.",
        )  # fmt: skip
    return call.node.cues


async def describe(call: Call) -> Any:
    return {"faults": [_show(fault) for fault in cues_of(call).answers.faults]}


async def begin(call: Call) -> Any:
    answers, most = cues_of(call).answers, call.node.settings.test_faults_max
    cue = _cue(call, answers)
    if len(answers) >= most:
        raise Problem(
            409, "TOO_MANY_FAULTS", f"{most} faults are on, the most allowed (pqbroker.test.faults.max)",
            "End some of them: DELETE /v1/test/faults.",
        )  # fmt: skip
    return _show(answers.add(cue))


async def end(call: Call) -> Any:
    number = call.path["fault"]
    if not cues_of(call).answers.end(number):
        raise Problem(404, "NO_SUCH_FAULT", f"fault {number} is not on, or is over", "GET /v1/test/faults shows all.")


async def clear(call: Call) -> Any:
    cues = cues_of(call)
    cues.answers.clear()
    if cues.store is not None and cues.store.faults is not None:
        cues.store.faults.clear()
        for pool in call.node.pools():
            cues.store.tell_colour(None, pool.name)


async def read_clock(call: Call) -> Any:
    clock = cues_of(call).clock
    return {"now_ms": clock(), "ahead_ms": clock.ahead_ms}


async def advance_clock(call: Call) -> Any:
    clock, by_ms, most = cues_of(call).clock, call.body["advance_ms"], call.node.settings.test_clock_ms_max
    ahead_ms = clock.ahead_ms + by_ms
    if ahead_ms > most:
        raise bad_request(
            f"the clock would be {ahead_ms} ms ahead; the most allowed is {most} (pqbroker.test.clock.ms.max)"
        )
    clock.advance(by_ms)
    call.node.cell.current.coordinators.advance(by_ms)
    await call.node.cell.retain()
    return await read_clock(call)


def _cue(call: Call, answers: FaultsOnCue) -> Cue:
    """Return the cue that the body asks for. Raise Problem."""
    body, apis = call.body, answers.apis
    act = _act(body["act"])
    api = _api(body["api"], apis) if "api" in body else None
    if act is Act.ERROR and (api is None or "error" not in body):
        raise bad_request("an error needs `api` and `error`")
    if "topic" in body and (api is None or api.key not in answers.by_partition):
        known = ", ".join(each.name for each in apis if each.key in answers.by_partition)
        raise bad_request(f"a fault of one topic is for one of {known}; leave topic and partition out")
    if "partition" in body and "topic" not in body:
        raise bad_request("a partition needs its topic")
    if act is Act.PAUSE and "times" in body:
        raise bad_request("a pause has no count; it ends by hold_ms, or when it is ended")
    return Cue(
        act, api, _error(body["error"]) if act is Act.ERROR else ErrorCode.NONE, body.get("topic"),
        body.get("partition"), body.get("times"), _hold_ms(call) if act in _HOLDING else 0,
        performed=body.get("performed", False),
    )  # fmt: skip


def _act(name: str) -> Act:
    try:
        return Act(name)
    except ValueError:
        raise bad_request(f"there is no act {name[:SHOWN]!r}; there are {', '.join(Act)}") from None


def _api(named: str | int, apis: Sequence[NamedApi]) -> NamedApi:
    """Return an API by name or key."""
    for api in apis:
        if named in (api.name, api.key):
            return api
    raise bad_request(f"no API {named!r:.{SHOWN}} is served{_hint(str(named), [api.name for api in apis])}")


def _error(name: str) -> ErrorCode:
    if name not in ErrorCode.__members__ or name == ErrorCode.NONE.name:
        raise bad_request(f"Kafka has no error {name[:SHOWN]!r}{_hint(name, list(ErrorCode.__members__))}")
    return ErrorCode[name]


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name[:SHOWN], known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _hold_ms(call: Call) -> int:
    most, hold_ms = call.node.settings.test_hold_ms_max, call.body.get("hold_ms")
    if hold_ms is None:
        raise bad_request("a delay and a pause need hold_ms, how long they hold an answer at most")
    if hold_ms > most:
        raise bad_request(f"hold_ms is {hold_ms}; the most allowed is {most} (pqbroker.test.hold.ms.max)")
    return int(hold_ms)


def _show(fault: Fault) -> dict[str, Any]:
    cue = fault.cue
    return {
        "fault": fault.number,
        "act": cue.act.value,
        "api": None if cue.api is None else cue.api.name,
        "error": cue.error.name if cue.act is Act.ERROR else None,
        "topic": cue.topic,
        "partition": cue.partition,
        "left": fault.left,
        "holding": fault.holding,
    }


ROUTES = (
    Route(
        "GET", "/v1/test/faults", "Test brokers: faults of requests that are on", describe,
        object_of({"faults": array_of(_FAULT)}), cluster=AclOperation.DESCRIBE,
    ),
    Route(
        "POST", "/v1/test/faults",
        "Test brokers: have requests of an API (name or key; without it of every one) meet a fault, `times` or until "
        "it is ended: " + ", ".join(Act),
        begin, _FAULT, status=201, cluster=AclOperation.ALTER,
        body=object_of(
            {"act": TEXT},
            {
                "api": {"type": ["string", "integer"]}, "error": TEXT, "topic": TEXT, "partition": COUNT,
                "times": _POSITIVE, "hold_ms": _POSITIVE, "performed": _BOOLEAN,
            },
        ),
        body_example={
            "act": "error", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "topic": "parcels", "times": 2,
        },
    ),
    Route(
        "DELETE", "/v1/test/faults/{fault}", "Test brokers: end a fault; answers that it holds leave", end, None,
        status=204, cluster=AclOperation.ALTER,
    ),
    Route(
        "DELETE", "/v1/test/faults", "Test brokers: end all faults, of requests and of the store", clear, None,
        status=204, cluster=AclOperation.ALTER,
    ),
    Route(
        "GET", "/v1/test/clock", "Test brokers: the broker's time", read_clock, _CLOCK, cluster=AclOperation.DESCRIBE,
    ),
    Route(
        "POST", "/v1/test/clock",
        "Test brokers: move the clock forward: retention, timestamps by LogAppendTime, sessions and time-outs of "
        "groups, expiry of offsets and producers follow",
        advance_clock, _CLOCK, body=object_of({"advance_ms": COUNT}), cluster=AclOperation.ALTER,
    ),
)  # fmt: skip

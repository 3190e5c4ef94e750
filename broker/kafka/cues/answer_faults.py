"""Faults of requests on cue. While one is on, its APIs are served from here; without any, nothing on their way differs.

States of a fault:
    on      meets requests; `left` counts those to come, None: until it is ended
    spent   met all it was to meet, and still holds answers back
    ended   by count, by a call or by time; what it held is answered
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from pqbroker.broker.ground.cues.faults import Act, Cue, Fault
from pqbroker.broker.kafka.apis.answer import Answer
from pqbroker.broker.kafka.apis.api import Api
from pqbroker.broker.kafka.apis.context import Context
from pqbroker.broker.kafka.cues.named_partitions import FETCH, SHAPES, Matches, cut, join, named
from pqbroker.broker.kafka.cues.refused_fetch import serve_refused
from pqbroker.broker.kafka.lanes.fetch_lane import ServeFetch
from pqbroker.protocol.errors import KafkaError, ProtocolError

ON_CUE = "a fault on cue"


class AnswerFaults:
    """The faults of a node."""

    def __init__(self, apis: Iterable[Api], serve_fetch: ServeFetch, switch: Callable[[Api], None]) -> None:
        """`serve_fetch`: the handler's of Fetch. `switch` has an API served as given from the next request on."""
        self.apis = tuple(apis)
        self.by_partition = SHAPES.keys()
        self._serve_fetch = serve_fetch
        self.switch = switch
        self._faults: dict[int, Fault] = {}
        self._switched: set[int] = set()
        self._given = 0

    def __len__(self) -> int:
        return len(self._faults)

    @property
    def faults(self) -> Sequence[Fault]:
        """Return the faults in the order in which they were given: the first that meets a request has it."""
        return tuple(self._faults.values())

    def add(self, cue: Cue) -> Fault:
        """Switch a fault on."""
        self._given += 1
        fault = self._faults[self._given] = Fault(self._given, cue)
        if cue.act is Act.PAUSE:
            fault.timer = asyncio.get_running_loop().call_later(cue.hold_ms / 1000, self.end, fault.number)
        self._refresh()
        return fault

    def end(self, number: int) -> bool:
        """End a fault; False when there is none of this number any more."""
        fault = self._faults.pop(number, None)
        if fault is None:
            return False
        fault.over.set()
        if fault.timer is not None:
            fault.timer.cancel()
        self._refresh()
        return True

    def clear(self) -> None:
        """End them all."""
        for number in tuple(self._faults):
            self.end(number)

    def _refresh(self) -> None:
        """Have each API served from here while a fault may meet it, and as ever when none may."""
        for api in self.apis:
            is_met = any(fault.meets(api.key) for fault in self._faults.values())
            if is_met and api.key not in self._switched:
                self._switched.add(api.key)
                self.switch(replace(api, serve=partial(self._serve, api), open_lane=None))
            elif not is_met and api.key in self._switched:
                self._switched.discard(api.key)
                self.switch(api)

    def _serve(self, api: Api, context: Context, request: Any) -> Any:
        fault = self._next(api, context, request)
        if fault is None:
            return api.serve(context, request)
        cue = fault.cue
        if cue.act is Act.ERROR:
            self._spend(fault)
            return self._refuse(api, cue, context, request)
        if cue.act is Act.DISCONNECT and not cue.performed:
            self._spend(fault)
            raise ProtocolError(ON_CUE)
        fault.holding += 1
        self._spend(fault)
        try:
            served = api.serve(context, request)
        except KafkaError as error:
            served = _raise_later(error)
        if inspect.isawaitable(served):
            served = asyncio.ensure_future(served)
        held = asyncio.ensure_future(_hold(fault, served))
        held.add_done_callback(partial(self._let_go, fault))
        return held

    def _next(self, api: Api, context: Context, request: Any) -> Fault | None:
        """The fault that a request meets."""
        for fault in self._faults.values():
            if fault.meets(api.key) and (fault.cue.topic is None or _is_named(api, fault.cue, context, request)):
                return fault
        return None

    def _refuse(self, api: Api, cue: Cue, context: Context, request: Any) -> Any:
        """The answer of a request with an error, for what the cue is about; the rest is served."""
        if cue.topic is None:
            raise KafkaError(cue.error, ON_CUE)
        matches = _matcher(cue, context)
        if api.key == FETCH:
            return serve_refused(self._serve_fetch, context, request, matches, cue.error)
        meant, rest = cut(api.key, request, matches)
        refused = api.refusal(context, meant, cue.error, ON_CUE)
        if rest is None or refused is None:  # a Produce with acks 0 has no answer: its connection closes
            raise KafkaError(cue.error, ON_CUE)
        return _join_later(api, api.serve(context, rest), refused)

    def _spend(self, fault: Fault) -> None:
        if fault.left is not None:
            fault.left -= 1
            self._refresh()
            self._end_if_spent(fault)

    def _let_go(self, fault: Fault, _: "asyncio.Future[Any]") -> None:
        fault.holding -= 1
        self._end_if_spent(fault)

    def _end_if_spent(self, fault: Fault) -> None:
        if fault.left == 0 and not fault.holding:
            self.end(fault.number)


async def _hold(fault: Fault, served: Any) -> Any:
    """Return what a handler served, once it may be answered."""
    while inspect.isawaitable(served):
        served = await served
    if fault.cue.act is Act.DISCONNECT:
        await _settled(served)
        raise ProtocolError(ON_CUE)
    with suppress(TimeoutError):
        async with asyncio.timeout(fault.cue.hold_ms / 1000 if fault.cue.act is Act.DELAY else None):
            await fault.over.wait()
    return served


def _is_named(api: Api, cue: Cue, context: Context, request: Any) -> bool:
    matches = _matcher(cue, context)
    return api.key in SHAPES and any(matches(*each) for each in named(api.key, context, request))


async def _join_later(api: Api, served: Any, refused: Any) -> Any:
    while inspect.isawaitable(served):
        served = await served
    response = await _settled(served)
    while inspect.isawaitable(response):
        response = await response
    return join(api.key, response, refused)


async def _settled(served: Any) -> Any:
    """The response of what a handler served."""
    if not isinstance(served, Answer):
        return served
    if not served.settled:
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        served.when_settled(lambda: None if settled.done() else settled.set_result(None))
        await settled
    if served.error is not None:
        raise served.error
    return served.response if served.step is None else served.step()


async def _raise_later(error: KafkaError) -> Awaitable[Any]:
    raise error


def _matcher(cue: Cue, context: Context) -> Matches:
    """A partition is meant by its topic's name or id, as the request has it."""
    topic = context.node.cell.current.topics.get(cue.topic or "")
    topic_id = None if topic is None else topic.record.topic_id

    def matches(name: str, asked_id: bytes, index: int) -> bool:
        return (name == cue.topic or asked_id == topic_id) and cue.partition in (None, index)

    return matches

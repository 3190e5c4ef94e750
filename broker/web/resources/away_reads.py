"""Reads of a query at another node: topics end there where they do when it begins, and are shown from there on; sorted
tablets are read at its timestamp.

Documents and what is in memory there come over the peer link; the worker reads the files of that node itself.
"""

from itertools import count
from typing import TYPE_CHECKING, Any, Final

from pqbroker.broker.services.sql.topic_reads import (
    AskedPartitions,
    PartitionSnapshot,
    Shown,
    Snapshots,
    TopicParts,
    WantedStretches,
)
from pqbroker.broker.services.sql.wanted_inputs import WantedInputs
from pqbroker.broker.web.routing.forwarded_calls import ask_node, unknown_answer
from pqbroker.broker.web.routing.problems import Problem
from pqbroker.broker.web.routing.routes import Call
from pqbroker.pq.reading.query import Isolation
from pqbroker.tables.work.refusal import QueryRefused

if TYPE_CHECKING:
    from pqbroker.tables.serving.stored_inputs import LocatedInputs

_NUMBERS: Final = count(1)
"""Numbers of the reads of this process: the other node keeps what they hold by them."""


class AwayReads:
    """Reads of one query. `call`: the query's; `node`: the number of the other one."""

    def __init__(self, call: Call, node: int, isolation: Isolation) -> None:
        self._call = call
        self._node = node
        self._isolation = isolation
        self._number = next(_NUMBERS)

    async def begin(self, parts: TopicParts) -> Snapshots:
        asked: AskedPartitions = {
            name: (topic.record.topic_id.hex(), indexes) for name, (topic, indexes) in parts.items()
        }
        head, _ = await self._ask({"begin": asked})
        try:
            return {name: [_snapshot(one) for one in head["begun"][name]] for name in asked}
        except (LookupError, TypeError, ValueError):
            raise _refused(unknown_answer(self._node)) from None

    async def stretches(self, wanted: WantedStretches) -> Shown:
        head, payload = await self._ask({"wanted": [*wanted]})
        if not isinstance(head.get("stretches"), list):
            raise _refused(unknown_answer(self._node))
        return {"stretches": head["stretches"]}, [payload]

    async def hold(self, timestamp: int) -> None:
        await self._ask({"hold": timestamp})

    async def inputs(self, wanted: WantedInputs) -> "LocatedInputs":
        from pqbroker.tables.serving.stored_inputs import LocatedInputs

        head, payload = await self._ask({"locate": [*wanted]})
        documents, chunks = head.get("inputs"), head.get("chunks")
        if not isinstance(documents, list) or not isinstance(chunks, int):
            raise _refused(unknown_answer(self._node))
        return LocatedInputs(documents, [payload], chunks)

    def close(self) -> None:
        others = self._call.node.others()
        if others is not None:
            others.tell_web(self._node, {"ended": self._number})

    async def _ask(self, asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """QueryRefused."""
        call, others = self._call, self._call.node.others()
        assert others is not None, "a node of several without the others runs no query"
        caller = [*call.principal, call.host, call.holder]
        try:
            sent = {"query": self._number, "caller": caller, "isolation": self._isolation.value, **asked}
            return await ask_node(others, self._node, sent)
        except Problem as problem:
            raise _refused(problem) from None


def _snapshot(told: Any) -> PartitionSnapshot:
    """ValueError, TypeError."""
    seen = PartitionSnapshot(*told)
    if not all(isinstance(number, int) for number in seen[:4]) or not isinstance(seen.revision, str):
        raise ValueError("a partition was expected")
    return seen


def _refused(problem: Problem) -> QueryRefused:
    return QueryRefused(problem.code, problem.message, problem.cure)

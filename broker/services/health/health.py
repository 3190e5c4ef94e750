"""The health of a node: looks at it, remembers what holds since when, and logs each change.

Doors read `status` and `conditions`, and nothing else says how the node is.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from pqbroker.broker.services.health.callers import HealthyNode
from pqbroker.broker.services.health.conditions import WARNING, Condition, ConditionKind, Conditions, NodeStatus
from pqbroker.broker.services.health.recent import Recent
from pqbroker.broker.services.health.symptoms import SYNC_SLOW_S, SYSTEM_PLACE, symptoms
from pqbroker.storage.engine import BlobKey, IndexDamaged, ShardLost

HEALTH_LOOK_S: Final = 0.5
"""Seconds between looks, so that each door says what is wrong within a second."""
FRESH_S: Final = 0.05
"""Age of a look that is new enough for a door that asks."""
CONDITIONS_MAX: Final = 100
"""Conditions that hold at most; a node with more has as many cells that are lost."""
CHANGES_LOGGED_MAX: Final = 20
"""Lines that one look logs at most."""
_log = logging.getLogger(__name__)


class Health:
    """One for the whole life of a node."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: a monotonic clock, in seconds."""
        self._clock = clock
        self._conditions = Conditions()
        self._recent = Recent()
        self._looked_at_s = float("-inf")
        self._was_open = True

    async def run(self, node: HealthyNode) -> None:
        """Look until the task is cancelled. No look waits for the question about damage: the disk may be stalled."""
        asking = asyncio.ensure_future(self._ask_for_damage(node))
        try:
            while True:
                if asking.done():
                    asking.result()
                    asking = asyncio.ensure_future(self._ask_for_damage(node))
                self.look(node)
                await asyncio.sleep(HEALTH_LOOK_S)
        finally:
            asking.cancel()

    async def _ask_for_damage(self, node: HealthyNode) -> None:
        """Ask each cell which damaged blobs it has; the looks up to the next question go by the answers."""
        found: dict[str, Mapping[BlobKey, str]] = {}
        for cell, host in list(node.cell.current.cells.hosts()):
            with suppress(ShardLost, IndexDamaged):
                if blobs := await host.cell.inspection.damaged_blobs():
                    found[f"cell {cell}"] = blobs
        self._recent.damaged_blobs = found

    def look(self, node: HealthyNode) -> None:
        """Find out what is wrong now, unless the last look is only just over."""
        now_s, is_open = self._clock(), node.cell.is_open
        if now_s - self._looked_at_s < FRESH_S and is_open == self._was_open:
            return
        self._looked_at_s, self._was_open = now_s, is_open
        self._recent.look(node, SYNC_SLOW_S, now_s)
        found = islice(symptoms(node, self._recent), CONDITIONS_MAX)
        changes = self._conditions.update(found, node.clock())
        for condition in (changes.begun + changes.altered)[:CHANGES_LOGGED_MAX]:
            symptom = condition.symptom
            text = "%s at %s: %s; affects %s; %s"
            _log.warning(text, symptom.kind, symptom.place, symptom.cause, symptom.affects, symptom.cure)
        for condition in changes.ended[:CHANGES_LOGGED_MAX]:
            seconds = max(node.clock() - condition.since_ms, 0) / 1000
            _log.info("%s at %s is over after %.1f s", condition.symptom.kind, condition.symptom.place, seconds)

    def status(self, node: HealthyNode) -> NodeStatus:
        """Return how the node is at this moment."""
        self.look(node)
        if node.cell.is_open and node.cell.current.coordinators.is_closed:
            return NodeStatus.STOPPING
        return self._conditions.status(SYSTEM_PLACE)

    def conditions(self, node: HealthyNode) -> list[Condition]:
        """Return what is wrong with the node at this moment, the gravest first."""
        self.look(node)
        return self._conditions.holding

    @property
    def found(self) -> list[Condition]:
        """Return what the last look has found, which is at most `HEALTH_LOOK_S` ago."""
        return self._conditions.holding

    def by_kind(self, node: HealthyNode) -> dict[str, int]:
        """Return the number of conditions by kind; a kind without any has 0."""
        counted = Counter(condition.symptom.kind for condition in self.conditions(node))
        return {kind.value: counted[kind] for kind in ConditionKind}

    def document(self, node: HealthyNode) -> dict[str, Any]:
        """Return status and conditions as JSON shows them; of several nodes the first one has those of all."""
        shown = [condition.document() for condition in self.conditions(node)]
        of_others = list(_conditions_of_others(node))
        status = self.status(node)
        if status is NodeStatus.OK and not all(one["severity"] == WARNING for one in of_others):
            status = NodeStatus.DEGRADED
        return {"status": status.value, "conditions": shown + of_others}


def _conditions_of_others(node: HealthyNode) -> Iterator[dict[str, Any]]:
    """Yield what other nodes have reported of themselves, with their numbers."""
    others = node.others()
    for number, state in () if others is None else sorted(others.states().items()):
        for one in state.conditions:
            yield {**one, "place": f"node {number}, {one['place']}"}

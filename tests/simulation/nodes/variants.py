"""Brokers of several nodes that are broken on purpose: each lacks one rule, which some seed has to find.

epoch        an owner that was replaced writes on
reclaim      a node removes from a cell what its copy of the scheme does not name, however old that is
coordinator  a coordinator of the past writes on, and partitions take what it asks for
none         offsets of a cell that is not open are "no offset"
held         a commit of offsets that was held is made though a later one has its partitions
decision     a node drops prepared rows of a commit of tables whose home it does not know
aborted      the cleaner takes records of aborted transactions for the last ones of their keys
session      nobody asks other nodes what they know of a session, and a tablet takes what it has
member       members of a group are answered before what they learn is durable
late         an earlier owner of a partition commits for its group
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from pqbroker.broker.kafka.handlers import offset_commit
from pqbroker.broker.node.served_partitions import ServedPartitions
from pqbroker.broker.services.cells.data_cells import DataCells
from pqbroker.broker.services.commits import finishing
from pqbroker.broker.services.coordination.modern.group import ModernGroup
from pqbroker.broker.services.coordination.modern_stores import ModernStores, Settle
from pqbroker.broker.services.tables.sessions_away import _Away
from pqbroker.pq.log import session_cycles
from pqbroker.pq.log.producer_transactions import AbortedBatches
from pqbroker.pq.log.sessions import SessionBatch
from pqbroker.pq.serving.held_commits import Enqueue, HeldCommits, Offsets, Outcomes
from pqbroker.pq.serving.offsets import GroupOffsets
from pqbroker.pq.transactions.commit_states import PreparedEnd, end_of_prepared
from pqbroker.protocol.records import BatchHeader
from pqbroker.storage.ids import CellId
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme_mark import SchemeMark
from pqbroker.tables.work import log_cleaning
from tests.simulation.nodes.directory import ALL, SYSTEM, SharedCell

Variant = Callable[[], AbstractContextManager[object]]


@contextmanager
def _without_epoch() -> Iterator[None]:
    with patch.object(SharedCell, "unfenced", ALL):
        yield


@contextmanager
def _with_stale_reclaim() -> Iterator[None]:
    serve = DataCells._serve

    async def serve_and_reclaim(cells: DataCells, cell: CellId, host: TabletHost) -> None:
        await serve(cells, cell, host)
        cells._scheme.reclaim(host, cell)

    knows_all = patch.object(SchemeMark, "why_kept", lambda *_, **__: "")
    with patch.object(DataCells, "_serve", serve_and_reclaim), knows_all:
        yield


@contextmanager
def _without_coordinator_fence() -> Iterator[None]:
    def meet_any(served: Any, coordinators: tuple[int, ...]) -> None:
        served._coordinators = (0,) * len(coordinators)

    systems_too = patch.object(SharedCell, "unfenced", SYSTEM)
    with patch.object(ServedPartitions, "_meet", meet_any), systems_too:
        yield


@contextmanager
def _with_none() -> Iterator[None]:
    with patch.object(GroupOffsets, "_is_known", lambda *_: True):
        yield


@contextmanager
def _with_late_commits() -> Iterator[None]:
    def is_passing(offsets: Offsets, outcomes: Outcomes, until: float) -> Offsets:
        if asyncio.get_running_loop().time() >= until:
            return {}
        return {each: offsets[each] for each, refusal in outcomes.items() if refusal is not None}

    def make(_: HeldCommits, __: str, ___: int, offsets: Offsets, enqueue: Enqueue) -> Awaitable[Outcomes]:
        return enqueue(offsets)

    again = patch.object(HeldCommits, "_again", lambda _held, _group, _number, *rest: is_passing(*rest))
    all_of_it = patch.object(HeldCommits, "_enqueue_again", make)
    with again, all_of_it:
        yield


@contextmanager
def _without_decision() -> Iterator[None]:
    def end(*, is_home_known: bool, is_decided: bool, is_under_way: bool) -> PreparedEnd:
        return end_of_prepared(is_home_known=True, is_decided=is_decided, is_under_way=is_under_way)

    with patch.object(finishing, "end_of_prepared", end):
        yield


class _Unknown(AbortedBatches):
    """Says of no batch that it was aborted."""

    def has(self, header: BatchHeader) -> bool:
        return False


@contextmanager
def _with_aborted() -> Iterator[None]:
    with patch.object(log_cleaning, "AbortedBatches", _Unknown):
        yield


@contextmanager
def _without_session() -> Iterator[None]:
    async def knows_none(*_: object) -> Mapping[int, SessionBatch]:
        return {}

    with patch.object(_Away, "taken", knows_none), patch.object(session_cycles, "comes_late", lambda *_: False):
        yield


@contextmanager
def _with_hasty_answers() -> Iterator[None]:
    follow = ModernStores.follow

    def follow_and_answer(stores: ModernStores, group: ModernGroup, settle: Settle | None = None) -> None:
        follow(stores, group)
        if settle is not None:
            settle(None)

    with patch.object(ModernStores, "follow", follow_and_answer):
        yield


@contextmanager
def _with_late_members() -> Iterator[None]:
    with patch.object(offset_commit, "check_commit", lambda *_: None):
        yield


WHOLE: Variant = nullcontext
VARIANTS: Mapping[str, Variant] = {
    "epoch": _without_epoch,
    "reclaim": _with_stale_reclaim,
    "coordinator": _without_coordinator_fence,
    "none": _with_none,
    "held": _with_late_commits,
    "decision": _without_decision,
    "aborted": _with_aborted,
    "session": _without_session,
    "member": _with_hasty_answers,
    "late": _with_late_members,
}

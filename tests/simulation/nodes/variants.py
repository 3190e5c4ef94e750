"""Brokers of several nodes that are broken on purpose: each lacks one rule, which some seed has to find.

epoch        an owner that was replaced writes on
reclaim      a node removes from a cell what its copy of the scheme does not name, however old that is
coordinator  a coordinator of the past writes on, and partitions take what it asks for
none         offsets of a cell that is not open are "no offset"
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from pqbroker.broker.node.served_partitions import ServedPartitions
from pqbroker.broker.services.cells.data_cells import DataCells
from pqbroker.pq.serving.offsets import GroupOffsets
from pqbroker.storage.ids import CellId
from pqbroker.storage.tablets.hosting import TabletHost
from pqbroker.storage.tablets.scheme_mark import SchemeMark
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


WHOLE: Variant = nullcontext
VARIANTS: Mapping[str, Variant] = {
    "epoch": _without_epoch,
    "reclaim": _with_stale_reclaim,
    "coordinator": _without_coordinator_fence,
    "none": _with_none,
}

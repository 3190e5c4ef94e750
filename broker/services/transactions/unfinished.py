"""Unfinished parts of commits over several tablets, as doors ask for them: with their tables and cells."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pqbroker.broker.ground.other_nodes import NodeSilent
from pqbroker.broker.services.commits.elsewhere import WantedParts, parts_elsewhere
from pqbroker.broker.services.commits.in_doubt import UnfinishedPart, is_in_doubt
from pqbroker.broker.services.coordination.coordinators import COORDINATOR_IDS
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.pq.transactions.stored_forms import ParticipantId
from pqbroker.storage.ids import SYSTEM_CELL, CellId
from pqbroker.storage.tablets.scheme import Scheme
from pqbroker.storage.tablets.scheme_objects import TOPIC
from pqbroker.tables.refusals import TableError


class TabletPlace(NamedTuple):
    """The place of a participant. `table` empty: it is a coordinator, or deleted; then `cell` is None."""

    participant: ParticipantId
    table: str
    tablet_index: int
    cell: CellId | None


async def unfinished(caller: TablesCaller, wanted: WantedParts) -> Sequence[UnfinishedPart]:
    """Return what is unfinished at all nodes, in the order of participants, kinds and transactions; the caller may
    describe the cluster. TableError NODE_SILENT."""
    node = caller.node
    own, others = wanted.among(node.cell.current.commits.unfinished()), node.others()
    if others is None:
        return own
    try:
        theirs = await parts_elsewhere(others, node.leaders.others, wanted)
    except NodeSilent as silent:
        cure = "Ask again; `pqbroker cell list` shows the cells of each node."
        raise TableError("NODE_SILENT", str(silent), cure) from None
    return sorted([*own, *theirs], key=lambda part: part.position)[: wanted.parts_max]


def in_doubt(caller: TablesCaller) -> Mapping[ParticipantId, int]:
    """Return the transactions in doubt by participant of this node: those that have waited for some seconds for what is
    not open."""
    now_ms = caller.node.clock()
    found: dict[ParticipantId, int] = {}
    for part in caller.node.cell.current.commits.unfinished():
        if is_in_doubt(part, now_ms):
            found[part.participant] = found.get(part.participant, 0) + 1
    return found


def places_of(scheme: Scheme, participants: set[ParticipantId]) -> Mapping[ParticipantId, TabletPlace]:
    """Return the places of participants."""
    tablets = {participant.tablet_id for participant in participants}
    owners = {owned.tablet_id: owned for owned in scheme.owned_tablets() if owned.tablet_id in tablets}
    found = {}
    for participant in participants:
        if participant.tablet_id in COORDINATOR_IDS:
            number = COORDINATOR_IDS.index(participant.tablet_id)
            found[participant] = TabletPlace(participant, "", number, SYSTEM_CELL)
            continue
        owned = owners.get(participant.tablet_id)
        if owned is None:
            found[participant] = TabletPlace(participant, "", participant.partition, None)
            continue
        row: Any = scheme.rows(owned.kind.row_set)[(owned.object_id,)]
        is_topic = owned.kind.name == TOPIC
        index = participant.partition if is_topic else row["tablets"].index(participant.tablet_id)
        found[participant] = TabletPlace(participant, row["name"], index, owned.cell)
    return found

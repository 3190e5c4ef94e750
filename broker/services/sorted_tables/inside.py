"""Insides of sorted tables: tablets surveyed as background work does it, and what keeps background work from one."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.services.sorted_tables.explaining import SWITCHED_OFF, Explanation, WaitingTask
from pqbroker.broker.services.sorted_tables.finding import find_sorted
from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.tables.finding import TabletRange, check_index
from pqbroker.tables.mount import MountState
from pqbroker.tables.serving.background import Background
from pqbroker.tables.serving.surveying import beside_the_loop
from pqbroker.tables.serving.table import SortedTable
from pqbroker.tables.serving.tablet import SortedTablet
from pqbroker.tables.sorted.picking.decisions import ChunkDecision, decisions
from pqbroker.tables.sorted.picking.survey import Survey, survey


class SurveyedTablet(NamedTuple):
    """One tablet of a table, and what it calls for now."""

    tablet_index: int
    tablet: SortedTablet
    rests: str
    """The thing that keeps tasks on its chunks from running; empty: nothing does."""
    seen: Survey
    decisions: Mapping[int, ChunkDecision]
    """ChunkDecision about each chunk by its number."""


def find_inside(caller: TablesCaller, name: str) -> tuple[SortedTable, Background]:
    """Return a table whose inside is shown: keys of rows are, so its rows must be readable. KafkaError
    TOPIC_AUTHORIZATION_FAILED; TableError NO_TABLE."""
    table = find_sorted(caller, AclOperation.READ, name)
    return table, caller.node.cell.current.sorted_tables.background


async def survey_tablet(caller: TablesCaller, table: SortedTable, index: int) -> SurveyedTablet:
    """Return what one tablet calls for now, with the decision about each of its chunks. TableError NO_TABLET."""
    check_index(table.record.name, len(table.tablets), index, "tablet")
    tablet, now_ms = table.tablets[index], caller.node.clock()
    facts = tablet.stores_later(is_frozen=table.is_frozen(index))

    def look() -> tuple[Survey, Mapping[int, ChunkDecision]]:
        seen = survey(facts(), now_ms)
        return seen, decisions(seen)

    return SurveyedTablet(index, tablet, rests_of(table, index), *await beside_the_loop(tablet, look))


async def explain(
    caller: TablesCaller, table: SortedTable, tablets: TabletRange, tasks_max: int
) -> tuple[Explanation, Sequence[WaitingTask]]:
    """Return all that a range of tablets calls for, without those that another node runs, and the most urgent tasks in
    the order in which they begin.
    TableError NO_TABLET."""
    now_ms = caller.node.clock()
    explanation = Explanation(tasks_max)
    for index in tablets.among(table.record.name, len(table.tablets)):
        if caller.node.leaders.other_node(table.record.cell_of(index)) is not None:
            continue  # that node tells of it
        tablet = table.tablets[index]
        take = partial(explanation.add, index, tablet.stores_later(is_frozen=table.is_frozen(index)), now_ms)
        await beside_the_loop(tablet, partial(take, rests_of(table, index)))
        await asyncio.sleep(0)
    background = caller.node.cell.current.sorted_tables.background
    return explanation, explanation.tasks(background.running_by_kind())


def rests_of(table: SortedTable, index: int) -> str:
    """Return what keeps tasks on a tablet's chunks from running; empty: nothing does."""
    tablet, state = table.tablets[index], table.state_of(index)
    if state is not MountState.MOUNTED:
        return f"the tablet is {state.value}"
    if not tablet.is_serving:
        return "the tablet is starting, or its cell is not open"
    if tablet.is_held:
        return "losses of the cell are not accepted yet"
    return "" if tablet.config.attributes.enable_compaction_and_partitioning else SWITCHED_OFF

"""The table of the writer's states: it is the one that is written down, and it leads where it should."""

import re
from collections.abc import Mapping

from pqbroker.pq.serving import writer_states
from pqbroker.pq.serving.writer_states import AT_REST, HELD, IDLE, LOSING, LOST, WRITING, WriterState

TABLES: dict[str, Mapping[WriterState, WriterState]] = {
    name: table for name, table in vars(writer_states).items() if name.startswith("ON_")
}


def test_the_table_is_the_one_in_the_docstring() -> None:
    rows = re.findall(r"^(\w+) +(on_\w+) +(\w+)", writer_states.__doc__ or "", re.MULTILINE)
    told = {(WriterState[state.upper()], event.upper(), WriterState[after.upper()]) for state, event, after in rows}
    assert told == {(state, event, after) for event, table in TABLES.items() for state, after in table.items()}
    assert len(rows) == len(told)


def reached(state: WriterState, *events: str) -> WriterState:
    for event in events:
        state = TABLES[event][state]
    return state


def test_every_state_is_reached_from_idle() -> None:
    found, new = {IDLE}, {IDLE}
    while new:
        new = {table[state] for table in TABLES.values() for state in new if state in table} - found
        found |= new
    assert found == set(WriterState)


def test_a_loss_is_for_ever_and_ends_with_the_cycle_in_work() -> None:
    for state in WriterState:
        if state < LOSING:
            lost = TABLES["ON_LOSS"][state]
            assert lost is (LOST if state in AT_REST else LOSING)
            assert all(table.get(lost, lost) >= LOSING for table in TABLES.values())
    assert reached(LOSING, "ON_REST") is LOST


def test_whatever_is_asked_to_hold_comes_to_rest_and_begins_nothing() -> None:
    for state in WriterState:
        holding = TABLES["ON_HOLD"][state]
        assert holding not in TABLES["ON_WORK"]
        assert reached(holding, *(() if holding in AT_REST else ("ON_REST",))) in (HELD, LOST)


def test_a_cycle_that_waits_for_the_head_begins_again() -> None:
    assert reached(IDLE, "ON_WORK", "ON_COLD_HEAD", "ON_LOADED") is WRITING
    assert reached(IDLE, "ON_WORK", "ON_COLD_HEAD", "ON_HOLD", "ON_LOADED", "ON_REST") is HELD
    assert reached(IDLE, "ON_WORK", "ON_COLD_HEAD", "ON_LOSS", "ON_LOADED", "ON_REST") is LOST

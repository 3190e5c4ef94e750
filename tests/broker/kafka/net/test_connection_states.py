"""The tables of a connection's states: what can follow what."""

from enum import IntEnum
from typing import Any

import pytest

from pqbroker.broker.kafka.net.connection_states import (
    ADMISSION,
    INTAKE,
    LIFE,
    SENDING,
    Admission,
    AdmissionEvent,
    IntakeEvent,
    Intaking,
    Life,
    LifeEvent,
    SendEvent,
    Sending,
)

TABLES: list[tuple[Any, type[IntEnum], type[IntEnum]]] = [
    (LIFE, Life, LifeEvent), (INTAKE, Intaking, IntakeEvent), (ADMISSION, Admission, AdmissionEvent),
    (SENDING, Sending, SendEvent),
]  # fmt: skip


def reachable(table: Any, first: IntEnum) -> set[IntEnum]:
    found, new = {first}, {first}
    while new:
        new = {after for (before, _), after in table.items() if before in new} - found
        found |= new
    return found


@pytest.mark.parametrize(("table", "states", "events"), TABLES)
def test_every_state_is_reached_and_every_event_means_something(
    table: Any, states: type[IntEnum], events: type[IntEnum]
) -> None:
    assert reachable(table, next(iter(states))) == set(states)
    assert {event for _, event in table} == set(events)


def test_every_connection_can_end_from_any_state_and_stays_so() -> None:
    assert {LIFE[life, LifeEvent.LOSE] for life in Life} == {Life.CLOSED}
    assert {after for (before, _), after in LIFE.items() if before is Life.CLOSED} == {Life.CLOSED}
    assert all(LIFE[life, LifeEvent.CLOSE] >= Life.CLOSING for life in Life)


def test_a_life_goes_one_way() -> None:
    assert not {(before, after) for (before, _), after in LIFE.items() if after < before}


def test_a_connection_that_ended_is_never_read_again() -> None:
    assert {after for (before, _), after in INTAKE.items() if before is Intaking.ENDED} == {Intaking.ENDED}


def test_a_full_connection_begins_nothing_until_it_is_eased() -> None:
    assert (Admission.FULL, AdmissionEvent.BEGIN) not in ADMISSION
    leaving = {
        event
        for (before, event), after in ADMISSION.items()
        if before is Admission.FULL and after is not Admission.FULL
    }
    assert leaving == {AdmissionEvent.EASE}


def test_requests_are_not_begun_while_requests_are_begun() -> None:
    assert (Admission.SERVING, AdmissionEvent.BEGIN) not in ADMISSION


def test_nothing_is_given_to_the_transport_while_files_are_on_their_way() -> None:
    assert [event for sending, event in SENDING if sending is Sending.BUSY] == [SendEvent.FILES_SENT]

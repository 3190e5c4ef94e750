"""States of a connection, as tables that it runs: `state = TABLE[state, event]`. A step that none has is a defect."""

from collections.abc import Mapping
from enum import IntEnum, auto
from typing import Final

# IntEnum: its members are hashed and compared without a call of Python code.


class Life(IntEnum):
    """Lives of a connection, in the order in which it goes through them."""

    OPEN = auto()
    DRAINING = auto()
    """Nothing more is read; what came is answered."""
    CLOSING = auto()
    """Nothing more begins; what is due leaves."""
    CLOSED = auto()


class LifeEvent(IntEnum):
    DRAIN = auto()
    CLOSE = auto()
    LOSE = auto()
    """The transport is gone, or nothing more is to be sent over it."""


LIFE: Final[Mapping[tuple[Life, LifeEvent], Life]] = {
    (Life.OPEN, LifeEvent.DRAIN): Life.DRAINING,
    (Life.DRAINING, LifeEvent.DRAIN): Life.DRAINING,
    (Life.CLOSING, LifeEvent.DRAIN): Life.CLOSING,
    (Life.CLOSED, LifeEvent.DRAIN): Life.CLOSED,
    (Life.OPEN, LifeEvent.CLOSE): Life.CLOSING,
    (Life.DRAINING, LifeEvent.CLOSE): Life.CLOSING,
    (Life.CLOSING, LifeEvent.CLOSE): Life.CLOSING,
    (Life.CLOSED, LifeEvent.CLOSE): Life.CLOSED,
    **{(life, LifeEvent.LOSE): Life.CLOSED for life in Life},
}


class Intaking(IntEnum):
    """States of reading from a connection."""

    READING = auto()
    PAUSED = auto()
    """A limit is reached, or the client has to wait."""
    ENDED = auto()


class IntakeEvent(IntEnum):
    PAUSE = auto()
    RESUME = auto()
    END = auto()


INTAKE: Final[Mapping[tuple[Intaking, IntakeEvent], Intaking]] = {
    (Intaking.READING, IntakeEvent.PAUSE): Intaking.PAUSED,
    (Intaking.PAUSED, IntakeEvent.RESUME): Intaking.READING,
    **{(intaking, IntakeEvent.END): Intaking.ENDED for intaking in Intaking},
}


class Admission(IntEnum):
    """States that decide if a request may begin."""

    FREE = auto()
    SERVING = auto()
    """Requests are begun; not entered again from the answers that this causes."""
    FULL = auto()
    """The client does not take its answers: nothing begins."""


class AdmissionEvent(IntEnum):
    BEGIN = auto()
    END = auto()
    FILL = auto()
    EASE = auto()


ADMISSION: Final[Mapping[tuple[Admission, AdmissionEvent], Admission]] = {
    (Admission.FREE, AdmissionEvent.BEGIN): Admission.SERVING,
    (Admission.SERVING, AdmissionEvent.END): Admission.FREE,
    (Admission.FREE, AdmissionEvent.END): Admission.FREE,  # full and eased while requests were begun
    (Admission.FULL, AdmissionEvent.END): Admission.FULL,
    **{(admission, AdmissionEvent.FILL): Admission.FULL for admission in Admission},
    (Admission.FREE, AdmissionEvent.EASE): Admission.FREE,
    (Admission.SERVING, AdmissionEvent.EASE): Admission.SERVING,
    (Admission.FULL, AdmissionEvent.EASE): Admission.FREE,
}


class Sending(IntEnum):
    """States of sending the answers that are due."""

    IDLE = auto()
    """Answers leave with the next call."""
    PLANNED = auto()
    """Answers leave when this turn of the loop ends, with those that become due until then."""
    WAITING = auto()
    """Some lie in files: they leave when the transport has sent all that it was given before."""
    BUSY = auto()
    """Files are on their way; what becomes due meanwhile follows them."""


class SendEvent(IntEnum):
    PLAN = auto()
    WAIT = auto()
    SEND = auto()
    """All that was due is with the transport, or with the socket."""
    SEND_FILES = auto()
    FILES_SENT = auto()


SENDING: Final[Mapping[tuple[Sending, SendEvent], Sending]] = {
    (Sending.IDLE, SendEvent.PLAN): Sending.PLANNED,
    (Sending.IDLE, SendEvent.WAIT): Sending.WAITING,
    (Sending.PLANNED, SendEvent.WAIT): Sending.WAITING,
    (Sending.WAITING, SendEvent.WAIT): Sending.WAITING,
    (Sending.IDLE, SendEvent.SEND): Sending.IDLE,
    (Sending.PLANNED, SendEvent.SEND): Sending.IDLE,
    (Sending.WAITING, SendEvent.SEND): Sending.IDLE,
    (Sending.IDLE, SendEvent.SEND_FILES): Sending.BUSY,
    (Sending.PLANNED, SendEvent.SEND_FILES): Sending.BUSY,
    (Sending.WAITING, SendEvent.SEND_FILES): Sending.BUSY,
    (Sending.BUSY, SendEvent.FILES_SENT): Sending.IDLE,
}

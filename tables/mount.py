"""Mount states of a tablet and the commands that change them (D.2): the tables that the mounting runs."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from pqbroker.tables.refusals import TableError


class MountState(StrEnum):
    """The last five are on their way and never stored."""

    MOUNTED = "mounted"
    FROZEN = "frozen"
    UNMOUNTED = "unmounted"
    MOUNTING = "mounting"
    FROZEN_MOUNTING = "frozen_mounting"
    UNMOUNTING = "unmounting"
    FREEZING = "freezing"
    UNFREEZING = "unfreezing"


class MountCommand(StrEnum):
    MOUNT = "mount"
    MOUNT_FROZEN = "mount frozen"
    UNMOUNT = "unmount"
    FREEZE = "freeze"
    UNFREEZE = "unfreeze"


_S, _C = MountState, MountCommand
NEXT: Mapping[tuple[MountState, MountCommand], MountState] = {
    (_S.MOUNTED, _C.MOUNT): _S.MOUNTED,
    (_S.MOUNTED, _C.UNMOUNT): _S.UNMOUNTING,
    (_S.MOUNTED, _C.FREEZE): _S.FREEZING,
    (_S.MOUNTED, _C.UNFREEZE): _S.MOUNTED,
    (_S.FROZEN, _C.MOUNT_FROZEN): _S.FROZEN,
    (_S.FROZEN, _C.UNMOUNT): _S.UNMOUNTING,
    (_S.FROZEN, _C.FREEZE): _S.FROZEN,
    (_S.FROZEN, _C.UNFREEZE): _S.UNFREEZING,
    (_S.UNMOUNTED, _C.MOUNT): _S.MOUNTING,
    (_S.UNMOUNTED, _C.MOUNT_FROZEN): _S.FROZEN_MOUNTING,
    (_S.UNMOUNTED, _C.UNMOUNT): _S.UNMOUNTED,
    (_S.MOUNTING, _C.MOUNT): _S.MOUNTING,
    (_S.FROZEN_MOUNTING, _C.MOUNT_FROZEN): _S.FROZEN_MOUNTING,
    (_S.FROZEN_MOUNTING, _C.FREEZE): _S.FROZEN_MOUNTING,
    (_S.UNMOUNTING, _C.UNMOUNT): _S.UNMOUNTING,
    (_S.FREEZING, _C.FREEZE): _S.FREEZING,
    (_S.FREEZING, _C.MOUNT_FROZEN): _S.FREEZING,
    (_S.FREEZING, _C.UNMOUNT): _S.UNMOUNTING,
    (_S.UNFREEZING, _C.MOUNT): _S.UNFREEZING,
    (_S.UNFREEZING, _C.UNFREEZE): _S.UNFREEZING,
}
"""State after a command. The same state: there is nothing to do, or the change has begun. A pair that is missing is
refused."""

ENDS: Mapping[MountState, MountState] = {
    _S.MOUNTING: _S.MOUNTED,
    _S.FROZEN_MOUNTING: _S.FROZEN,
    _S.UNMOUNTING: _S.UNMOUNTED,
    _S.FREEZING: _S.FROZEN,
    _S.UNFREEZING: _S.MOUNTED,
}
"""Final states of the states in between."""
_HELPS: Mapping[MountState, str] = {_S.FROZEN: "unfreeze", _S.UNMOUNTED: "mount"}
"""The command that opens a tablet in such a state."""
FLUSHING = frozenset({_S.UNMOUNTING, _S.FREEZING})
"""All rows lie in the body before these end."""


def next_state(index: int, state: MountState, command: MountCommand) -> MountState:
    """TableError WRONG_STATE where the matrix of D.2 refuses the command."""
    found = NEXT.get((state, command))
    if found is None:
        allowed = sorted(other.value for before, other in NEXT if before is state)
        cure = f"Its state allows {', '.join(allowed)}."
        raise TableError("WRONG_STATE", f"tablet {index} is {state.value}, which does not allow {command.value}", cure)
    return found


def closed(path: str, index: int, state: MountState) -> TableError:
    """TableError WRONG_STATE of a tablet that is not mounted as it has to be, with the verb that helps."""
    verb = _HELPS.get(state)
    cure = "It is on its way: try again." if verb is None else f"`pqbroker table {verb}` {verb}s it."
    return TableError("WRONG_STATE", f"tablet {index} of {path} is {state.value}", cure)


def table_state(states: Iterable[MountState]) -> str:
    """Return one word for all tablets: their state, `mixed`, or `transient` while one is between two states."""
    found = set(states)
    if not found.isdisjoint(ENDS):
        return "transient"
    return found.pop().value if len(found) == 1 else "mixed"

"""The matrix of D.2, its transient states, and the state of a whole table."""

import pytest

from pqbroker.tables.mount import ENDS, MountCommand, MountState, next_state, table_state
from pqbroker.tables.refusals import TableError

pytestmark = pytest.mark.spec("D.2")

M, F, U = MountState.MOUNTED, MountState.FROZEN, MountState.UNMOUNTED
COMMANDS = (
    MountCommand.MOUNT, MountCommand.MOUNT_FROZEN, MountCommand.UNMOUNT, MountCommand.FREEZE, MountCommand.UNFREEZE,
)  # fmt: skip
STEADY = {
    M: (M, None, U, F, M),
    F: (None, F, U, F, M),
    U: (M, F, U, None, None),
}
"""As the specification has it: where each command ends, None for an error."""
ACCEPTED = {
    MountState.UNMOUNTING: {MountCommand.UNMOUNT},
    MountState.FREEZING: {MountCommand.FREEZE, MountCommand.MOUNT_FROZEN, MountCommand.UNMOUNT},
    MountState.UNFREEZING: {MountCommand.MOUNT, MountCommand.UNFREEZE},
    MountState.MOUNTING: {MountCommand.MOUNT},
    MountState.FROZEN_MOUNTING: {MountCommand.MOUNT_FROZEN, MountCommand.FREEZE},
}


@pytest.mark.parametrize("state", STEADY)
def test_commands_lead_where_the_matrix_says(state: MountState) -> None:
    for command, end in zip(COMMANDS, STEADY[state], strict=True):
        if end is None:
            with pytest.raises(TableError, match=state.value) as refused:
                next_state(3, state, command)
            assert refused.value.code == "WRONG_STATE"
        else:
            found = next_state(3, state, command)
            assert ENDS.get(found, found) is end
            assert (found is state) == (end is state)


@pytest.mark.parametrize("state", ACCEPTED)
def test_on_the_way_only_some_commands_are_accepted(state: MountState) -> None:
    for command in COMMANDS:
        if command in ACCEPTED[state]:
            overtakes = (state, command) == (MountState.FREEZING, MountCommand.UNMOUNT)
            assert (next_state(0, state, command) is state) == (not overtakes)
        else:
            with pytest.raises(TableError):
                next_state(0, state, command)


def test_a_table_has_the_state_of_its_tablets() -> None:
    assert table_state([M, M]) == "mounted"
    assert table_state([M, F]) == "mixed"
    assert table_state([M, MountState.FREEZING]) == "transient"

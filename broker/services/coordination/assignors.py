"""Assignors that members of groups of KIP-848 can ask for, by name; the first is taken where none is asked for."""

from collections.abc import Iterable, Mapping
from typing import Final

from pqbroker.broker.services.coordination.assigning.assignor import Assignor
from pqbroker.broker.services.coordination.assigning.range_assignor import RangeAssignor
from pqbroker.broker.services.coordination.assigning.uniform import UniformAssignor

_ASSIGNORS: Final[Mapping[str, Assignor]] = {each.name: each for each in (UniformAssignor(), RangeAssignor())}


def assignors_named(names: Iterable[str]) -> Mapping[str, Assignor]:
    """Return the assignors of these names (group.consumer.assignors), in their order."""
    return {name: _ASSIGNORS[name] for name in names}

"""The mark of a salvage in a cell's directory: what was given up, and whether that is accepted.

    none --begin--> begun --hold--> held --accept--> accepted      begun, held, accepted --begin--> begun

`salvaged` is JSON. While it says `begun` no start opens the cell: what stands in for lost rounds may be missing. While
it says `held` nothing of the cell is removed, moved or emptied. It stays when it is accepted, since it says which
offsets nobody was ever given. One that cannot be read counts as held.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pqbroker.storage.disk.directory import write_durably
from pqbroker.storage.engine import EngineError
from pqbroker.storage.quarantine import HELD_CURE

SALVAGED = "salvaged"
GO_ON = "run `pqbroker doctor --salvage --perform` again"


class MarkState(StrEnum):
    """The state of a salvage, as its mark stores it."""

    BEGUN = "begun"
    HELD = "held"
    ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class SalvageMark:
    """The mark of the salvages of a cell. `places`: what was damaged, and where its bytes are kept.

    `skipped`: by the name of a partition, the offsets [first, end) that its records leave out.
    """

    state: MarkState
    places: Mapping[str, str] = field(default_factory=dict)
    lost_rounds: int = 0
    """Rounds that a salvage gives up at most, once it has begun."""
    lost_bytes: int = 0
    skipped: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)

    @property
    def damages(self) -> dict[str, str]:
        """Reasons why nothing is removed, by place."""
        if self.state is MarkState.ACCEPTED:
            return {}
        return {place: f"{what}: {HELD_CURE}" for place, what in self.places.items()} or {"a salvage": HELD_CURE}


NO_MARK = SalvageMark(MarkState.ACCEPTED)
_UNREADABLE = SalvageMark(MarkState.HELD, {SALVAGED: "this file, the mark of a salvage, cannot be read"})


def read_mark(path: Path) -> SalvageMark:
    """The mark in a cell's directory; NO_MARK without one. PermissionError."""
    file = path / SALVAGED
    if not file.exists():
        return NO_MARK
    try:
        told: dict[str, Any] = json.loads(file.read_bytes())
        mark = SalvageMark(**{**told, "state": MarkState(told["state"])})
        _check(mark)
    except PermissionError:  # says nothing of the data
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OSError):
        return _UNREADABLE
    return mark


def write_mark(path: Path, mark: SalvageMark) -> None:
    """Replace the mark, durably. OSError."""
    write_durably(path / SALVAGED, json.dumps(asdict(mark), indent=1).encode() + b"\n")


def check_complete(path: Path) -> SalvageMark:
    """The mark of a cell that is to be opened. EngineError where a salvage was begun and has not ended."""
    mark = read_mark(path)
    if mark.state is MarkState.BEGUN:
        raise EngineError(f"a salvage of {path} was interrupted: {GO_ON}")
    return mark


def accept_mark(path: Path) -> bool:
    """Accept what salvages gave up; whether there was anything to accept. EngineError, OSError."""
    mark = check_complete(path)
    if mark.state is MarkState.ACCEPTED:
        return False
    write_mark(path, replace(mark, state=MarkState.ACCEPTED))
    return True


def _check(mark: SalvageMark) -> None:
    """ValueError, AttributeError or TypeError for what no salvage wrote."""
    texts = [text for item in mark.places.items() for text in item]
    numbers = [mark.lost_rounds, mark.lost_bytes]
    for ranges in mark.skipped.values():
        for first, end in ranges:
            numbers += (first, end)
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        raise ValueError("it has values of other types")

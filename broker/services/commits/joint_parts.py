"""Parts of a commit by cell, and what all parts of a group go through together."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from pqbroker.pq.transactions.participants import BesidePart, CommitPart
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.tablet import KeyValueTablet
from pqbroker.storage.outcome import Outcome

P = TypeVar("P", bound=CommitPart)


async def enter(parts: Sequence[CommitPart], holding: list[CommitPart]) -> None:
    """Have parts take their places in one turn of the loop; return when all hold, and have looked at their rows.
    `holding`: gets those that have entered. Raises why one of them never will hold."""
    turns: Outcome[None] = Outcome()
    left = len(parts)

    def turn(error: BaseException | None) -> None:
        nonlocal left
        left -= 1
        if not turns.done() and (error is not None or not left):
            turns.settle(error)

    for part in parts:
        holding.append(part)
        part.enter(turn)
    if parts:
        await turns
    for part in parts:
        await part.examine()


def by_cell(parts: Sequence[P]) -> list[list[P]]:
    """Return the parts by cell, each in the order of the parts."""
    found: list[list[P]] = []
    for part in parts:
        storage = part.participant.storage
        same = next((cell for cell in found if cell[0].participant.storage.shares_cell(storage)), None)
        if same is None:
            found.append([part])
        else:
            same.append(part)
    return found


def commands_of(parts: Sequence[CommitPart], timestamp: int | None) -> defaultdict[KeyValueTablet, list[Command]]:
    """Return the commands of parts by tablet."""
    found: defaultdict[KeyValueTablet, list[Command]] = defaultdict(list)
    for part in parts:
        found[part.participant.kv] += part.commands(timestamp)
        for tablet, commands in part.beside():
            found[tablet] += commands
    return found


async def encode(parts: Sequence[CommitPart], timestamp: int | None) -> None:
    """Have parts make ready what `commands_of` returns."""
    for part in parts:
        await part.encode(timestamp)


def check(parts: Sequence[CommitPart | BesidePart]) -> None:
    """Raise why a part that holds cannot be written."""
    refusals = [part.refusal() for part in parts]
    for refusal in refusals:
        if refusal is not None:
            raise refusal


def told(parts: Sequence[CommitPart], request: Outcome[None], beside: Sequence[BesidePart] = ()) -> Outcome[None]:
    """Tell parts what became of their request; done when all have done with it what it means."""
    end: Outcome[None] = Outcome()
    left = 0

    def done(_: Outcome[None]) -> None:
        nonlocal left
        left -= 1
        if not left:
            end.settle(request.exception())

    def tell(_: Outcome[None]) -> None:
        nonlocal left
        ends = [part.told(request.exception()) for part in parts]
        for each in beside:
            each.told(request.exception())
        waiting = [one for one in ends if not one.done()]  # few rows are applied in this call
        left = len(waiting)
        for one in waiting:
            one.add_done_callback(done)
        if not waiting:
            end.settle(request.exception())

    request.add_done_callback(tell)
    return end

"""Stretches of a partition as a worker is shown them: where they lie in files, and the bytes that are in none."""

from typing import Any

from pqbroker.pq.serving.stretches import Stretch
from pqbroker.storage.engine import Buffer, FileRange


def show_stretch(stretch: Stretch, payload: list[Buffer]) -> dict[str, Any]:
    """Return where a stretch lies; what is in no file is appended to `payload`."""
    pieces: list[int | FileRange] = []
    for piece in stretch.pieces:
        if isinstance(piece, FileRange):
            pieces.append(piece)
        else:
            pieces.append(len(piece))
            payload.append(piece)
    return {"pieces": pieces, "next_offset": stretch.next_offset, "blob": stretch.blob, "bounds": stretch.bounds}

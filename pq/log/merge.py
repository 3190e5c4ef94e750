"""The KV commands that make one blob out of stored head blobs and new batches: by reference where pieces are large,
by copy below."""

from collections.abc import Sequence

from pqbroker.pq.log.batch_run import Run
from pqbroker.pq.log.head import HeadBlob
from pqbroker.storage.engine import Buffer
from pqbroker.storage.kv.commands import Command, Concat, DeleteRange, Piece, Write


def merge(
    partition: int,
    blobs: Sequence[HeadBlob],
    run: Run,
    span: tuple[int, int],
    output: tuple[bytes, bytes],
    by_reference: bool,
) -> tuple[list[Command], int]:
    """Commands that store `blobs`, new bytes of the run (`span`: positions) and an index; and its number of pieces.
    `output`: the key to store them under, and the index.

    Blobs whose content is not in the run are taken by reference whatever their size.
    """
    commands: list[Command] = []
    inputs: list[bytes | Piece] = []
    pieces = 0
    copied: list[HeadBlob] = []
    for blob in blobs:
        if blob.position < run.base or (by_reference and blob.is_large):
            if copied:
                commands.append(_delete(partition, copied))
                inputs.append(_piece(run, copied[0].position, blob.position, b""))
                copied = []
            inputs.append(blob.key(partition))
            pieces += blob.pieces
        else:
            copied.append(blob)
    (key, index), (start, stop) = output, span
    if copied:
        commands.append(_delete(partition, copied))
        start = copied[0].position
    last = _piece(run, start, stop, index)
    if not inputs:
        commands.append(Write(key, last.buffers, last.size))
        return commands, 1
    if last.size:
        inputs.append(last)
    commands.append(Concat(tuple(inputs), key))
    return commands, pieces + sum(isinstance(item, Piece) for item in inputs)


def _delete(partition: int, blobs: Sequence[HeadBlob]) -> DeleteRange:
    return DeleteRange(blobs[0].key(partition), True, blobs[-1].key(partition), True)


def _piece(run: Run, start: int, stop: int, index: bytes) -> Piece:
    buffers: list[Buffer] = run.slices(start, stop) if start < stop else []
    if index:
        buffers.append(index)
    return Piece(buffers, stop - start + len(index))

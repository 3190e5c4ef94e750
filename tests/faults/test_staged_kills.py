"""kill -9 while batches of staged rows are committed: each row is there once, however the batch is split when it comes
again."""

import random
from itertools import pairwise
from pathlib import Path

from pqbroker.cli.commands.doctor import examine_directory
from pqbroker.client import Client, Column, StagedPiece
from pqbroker.testing import broker
from tests.faults.test_cell_kills import ask

ROUNDS = 5
ROWS = 2500
TEXT = "x" * 600
COMMIT = "/v1/tables/staged/staged-rows/commit"


def test_a_batch_whose_commit_was_killed_is_written_once_in_another_split(tmp_path: Path) -> None:
    """Kills come while the request is on its way, while pieces are written, and behind the last."""
    dice = random.Random(11)
    with broker(tmp_path / "data") as node:
        with Client(node.http) as client:
            client.table("staged").create([Column("n", "int64"), Column("text", "utf8")], tablet_count=3)
        half_written = 0
        for sequence in range(ROUNDS):
            connection = ask(node.http, COMMIT, body(stage(node.http, dice, sequence), sequence))
            written = await_rows(node.http, sequence * ROWS + (1, ROWS // 2, 0, ROWS, 1, 1)[sequence])
            half_written += sequence * ROWS < written < (sequence + 1) * ROWS
            node.kill()
            connection.close()
            node.start()
            again = stage(node.http, dice, sequence)
            with Client(node.http) as client:
                client.table("staged").commit_staged(again, session="q", sequence=sequence)
                found = sorted(row["n"] for tablet in range(3) for row in client.table("staged").rows(tablet))
            assert found == list(range((sequence + 1) * ROWS)), sequence
        assert half_written, "no kill came amid the pieces"
        node.stop()
        assert examine_directory(tmp_path / "data", {}).found == []


def stage(address: str, dice: random.Random, sequence: int) -> list[StagedPiece]:
    """The rows of a batch, in an order and in pieces of chance."""
    rows = [{"n": sequence * ROWS + number, "text": TEXT} for number in range(ROWS)]
    dice.shuffle(rows)
    cuts = [0, *sorted(dice.sample(range(1, ROWS), 39)), ROWS]
    with Client(address) as client:
        table = client.table("staged")
        return [
            piece
            for begin, end in pairwise(cuts)
            for piece in table.stage(rows[begin:end], session="q", sequence=sequence)
        ]


def body(pieces: list[StagedPiece], sequence: int) -> dict[str, object]:
    return {"session": "q", "sequence": sequence, "pieces": [piece.name for piece in pieces]}


def await_rows(address: str, count: int) -> int:
    """Look until the table has so many rows, or its batch is written: how many there were."""
    with Client(address) as client:
        while True:
            written = sum(end for _, end in client.table("staged").row_ranges().ranges)
            if written >= count:
                return written

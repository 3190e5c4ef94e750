"""`pqbroker crashtest`: a run that is well, refusals, and what breaks a promise."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.__main__ import main
from pqbroker.cli.commands.crashtest import Verdict
from pqbroker.cli.crashtest.book import Book, Books, Broken, Comparison
from pqbroker.cli.crashtest.kills import crash
from pqbroker.cli.crashtest.transfers import SIDES, TransferLoad, check_sum, check_transfers, make_tables
from pqbroker.cli.refusals import CommandError
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import broker, memory_broker
from tests.cli.shell import Shell, start
from tests.support.cli_page import KEYS
from tests.support.waiting import DEADLINE_S, wait_until


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell("", capsys)


def test_a_sound_disk_is_told_and_nothing_is_left(shell: Shell, tmp_path: Path) -> None:
    data = tmp_path / "new" / "crashtest"
    said = shell.raw("crashtest", "--data", str(data), "--minutes", "0.05", "--seed", "7", "--json")
    assert ", ".join(said.object) == KEYS["crashtest"]
    assert said.object["seed"] == 7
    assert said.object["kills"] >= 1
    assert said.object["records"] > 0
    assert said.object["transfers"] > 0
    assert said.object["commits"] > 0
    assert not data.exists()


def test_a_directory_with_something_in_it_is_refused_and_left_alone(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    said = shell.raw("crashtest", "--data", str(tmp_path))
    assert said.status == 1
    assert said.errors == f"pqbroker: {tmp_path} is not empty; choose a directory that is, or is not there yet\n"
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_broken_promise_is_told_with_seed_and_directory(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object) -> int:
        raise Broken("one record is gone")

    monkeypatch.setattr(Comparison, "end", lose)
    data = tmp_path / "data"
    said = shell.raw("crashtest", "--data", str(data), "--minutes", "0.05", "--seed", "3")
    assert (said.status, said.output) == (1, "")
    assert said.errors == f"pqbroker: seed 3: one record is gone; see the broker's log and data in {data}\n"
    assert (data / "log").exists()
    assert main(["doctor", str(data / "data")]) == 0


def test_a_directory_that_the_doctor_cannot_look_at_is_told_with_seed_and_directory(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CommandError("the index is damaged")

    monkeypatch.setattr("pqbroker.cli.commands.crashtest.examine_directory", refuse)
    data = tmp_path / "data"
    said = shell.raw("crashtest", "--data", str(data), "--minutes", "0.05", "--seed", "3")
    assert (said.status, said.output) == (1, "")
    assert said.errors == f"pqbroker: seed 3: the index is damaged; see the broker's log and data in {data}\n"
    assert (data / "data" / "cell").exists()


def book(producer: int, acknowledged: dict[int, int]) -> Book:
    one = Book(producer, 0, 10)
    for number, offset in acknowledged.items():
        one.acknowledge(number, offset)
    return one


def compare(books: list[Book], log: list[tuple[int, bytes]], partition: int = 0) -> int:
    comparison = Comparison(books)
    for offset, value in log:
        comparison.take(partition, offset, value)
    return comparison.end()


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ([(0, b"0:0:"), (1, b"0:1:")], None),
        ([(0, b"0:0:"), (1, b"1:0:"), (2, b"0:1:")], "lie elsewhere"),
        ([(0, b"0:0:")], "1 acknowledged records are gone, first 1"),
        ([(0, b"0:0:"), (1, b"0:1:"), (2, b"0:1:")], "a record twice or out of order"),
        ([(0, b"0:0:"), (1, b"0:1:"), (2, b"0:5:"), (3, b"0:2:")], "a record twice or out of order"),
        ([(0, b"0:0:"), (1, b"0:1:"), (2, b"0:2:")], None),
    ],
)
def test_a_log_is_compared_with_the_books(log: list[tuple[int, bytes]], told: str | None) -> None:
    books = [book(0, {0: 0, 1: 1}), book(1, {})]
    if told is None:
        assert compare(books, log) == 2
        return
    with pytest.raises(Broken, match=told):
        compare(books, log)


def test_where_a_record_lies_need_not_be_told() -> None:
    assert compare([book(0, {1: -1})], [(0, b"0:0:"), (7, b"0:1:")]) == 1
    with pytest.raises(Broken, match="1 acknowledged records are gone, first 1"):
        compare([book(0, {1: -1})], [(0, b"0:0:"), (1, b"0:2:")])


def test_a_record_in_another_partition_breaks_the_promise() -> None:
    with pytest.raises(Broken, match="producer 0: a record is in partition 1, not 0"):
        compare([book(0, {})], [(0, b"0:0:")], partition=1)


def test_a_record_that_is_given_up_breaks_the_promise() -> None:
    books = Books([0])
    books.check_failures()
    books.note_failure(books.books[0], "timed out")
    with pytest.raises(Broken, match="1 records were given up, the first: timed out"):
        books.check_failures()


def test_a_record_that_is_given_up_ends_the_wait_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbroker.cli.crashtest.book.AWAIT_S", 5 * 60)
    books = Books([0, 0])
    books.note_failure(books.books[0], "timed out")
    with pytest.raises(Broken, match="given up"):
        books.await_acknowledgements(1)


def test_a_directory_that_was_there_stays_and_is_empty(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(directory: Path, *_: object) -> Verdict:
        (directory / "log").touch()
        (directory / "data" / "blobs").mkdir(parents=True)
        return Verdict(1, 1)

    monkeypatch.setattr("pqbroker.cli.commands.crashtest._run", write)
    assert shell.raw("crashtest", "--data", str(tmp_path)).status == 0
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_told(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(directory: Path, *_: object) -> Verdict:
        (directory / "notes").touch()
        return Verdict(1, 1)

    monkeypatch.setattr("pqbroker.cli.commands.crashtest._run", write)
    said = shell.raw("crashtest", "--data", str(tmp_path / "data"))
    assert said.status == 1
    assert f"what was written into {tmp_path / 'data'} cannot be removed: " in said.errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    with start("crashtest", "--data", str(data)) as running:
        wait_until((data / "data" / "cell").exists, "a broker starts")
        running.send_signal(number)
        assert running.wait(DEADLINE_S) == 1
        assert running.stderr is not None
        assert running.stderr.read() == "pqbroker: interrupted\n"
    assert not data.exists()


class Quiet:
    """A load that needs nothing."""

    def await_acknowledgements(self, count: int) -> None: ...

    def ends(self) -> dict[int, int]:
        return {0: 5}


@pytest.mark.parametrize("ends", [[4], [9, 8]])
def test_an_end_that_goes_back_breaks_the_promise(ends: list[int]) -> None:
    told: Iterator[int] = iter(ends)
    last = ends[-1]
    with broker() as node, pytest.raises(Broken, match="partition 0: the end went back to"):
        crash(
            node, Quiet(), random.Random(1),
            goes_on=lambda kills: kills < 1, start=node.start, read_ends=lambda: {0: next(told, last)},
        )  # fmt: skip


@pytest.fixture(scope="module")
def banked() -> Iterator[HttpCalls]:
    """A broker with the tables of the transfers."""
    with memory_broker() as one:
        calls = HttpCalls(lambda: one.http)
        assert make_tables(calls)
        yield calls


def test_transfers_that_keep_their_word_are_counted_and_others_are_told(banked: HttpCalls) -> None:
    with TransferLoad(banked, 5) as load:
        wait_until(lambda: len(load.acknowledged) >= 3, "three transfers")
    check_sum(banked)
    assert check_transfers(banked, load) == len(load.acknowledged)
    gone, undead = (load.acknowledged, "acknowledged and are gone"), (load.refused, "refused")
    for name, (some, what) in (("a", gone), (min(load.acknowledged), undead)):
        some.add(name)
        with pytest.raises(Broken, match=what):
            check_transfers(banked, load)
        some.discard(name)
    (row,) = banked.ask("POST", f"/v1/tables/{SIDES[0]}/lookup", {"keys": [{"id": 0}]})["rows"]
    more = {"rows": [{"id": 0, "balance": row["balance"] + 1}]}
    banked.ask("POST", f"/v1/tables/{SIDES[0]}/rows", more)
    with pytest.raises(Broken, match="the balances add up to 24001, not 24000: a transfer is torn"):
        check_sum(banked)
    with pytest.raises(Broken, match=f"account 0 of {SIDES[0]} has"):
        check_transfers(banked, load)


def test_a_transfer_that_fails_otherwise_breaks_the_run(banked: HttpCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbroker.cli.crashtest.transfers.TRANSFER_LOG", "nowhere")
    with TransferLoad(banked, 5) as load:
        wait_until(lambda: bool(load.failure), "a failure")
    with pytest.raises(Broken, match="a transfer failed: "):
        check_transfers(banked, load)

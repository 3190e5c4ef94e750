"""The watch over a broker while aiokafka works: what is told, and when it gives up. Nothing waits for a real second."""

import asyncio
import socket

import pytest

from pqbroker.cli.connection_security import use_security
from pqbroker.cli.kafka import watch as watching
from pqbroker.cli.kafka.watch import BrokerGone, Watch
from pqbroker.cli.refusals import CommandError
from pqbroker.testing import broker


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_EVERY_S", 0.01)
    use_security(None)  # else that of the last command in this process: its login has no place here


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


async def test_it_gives_up_and_the_work_can_end_itself(nobody: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")

    with pytest.raises(BrokerGone, match=f"no broker has answered at {nobody} for 0.05 s .Connection refused."):
        await Watch(nobody, 0.05).over(work())
    assert ended == ["work"]
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"pqbroker: no broker answers at {nobody} (Connection refused); waiting until it is back, 0.05 s at most; "
        "Ctrl-C ends it\n"
    )


async def test_without_an_end_it_waits_for_ever(nobody: str, capsys: pytest.CaptureFixture[str]) -> None:
    watch, told = Watch(nobody, None), asyncio.Event()

    async def work() -> int:
        await told.wait()
        return 7

    over = asyncio.ensure_future(watch.over(work()))
    errors = ""
    while "waiting until it is back; Ctrl-C ends it" not in errors:
        await asyncio.sleep(0.01)
        errors += capsys.readouterr().err
    told.set()
    assert await over == 7
    assert capsys.readouterr().err == ""


async def test_a_work_that_makes_progress_is_not_disturbed(nobody: str, capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch(nobody, 0.0)

    async def work() -> int:
        for _ in range(100):
            watch.moved()
            await asyncio.sleep(0.001)
        return 7

    assert await watch.over(work()) == 7
    assert capsys.readouterr().err == ""


async def test_an_error_of_the_work_is_told(nobody: str) -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Watch(nobody, None).over(work())


async def test_a_broker_that_comes_back_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with broker() as running:
        over = asyncio.ensure_future(Watch(running.kafka, None).over(asyncio.Event().wait()))
        errors = ""
        for act, words in ((running.kill, "; waiting until it is back; "), (running.start, " answers again\n")):
            await asyncio.to_thread(act)
            while words not in errors:
                await asyncio.sleep(0.01)
                errors += capsys.readouterr().err
        over.cancel()
        with pytest.raises(asyncio.CancelledError):
            await over
    assert errors.count("\n") == 2


async def test_a_defect_of_a_look_ends_the_work(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(watching, "Link", broken)
    with pytest.raises(RuntimeError, match="new thread"):
        await Watch(nobody, None).over(asyncio.Event().wait())


async def test_a_login_that_is_refused_counts_as_no_answer(
    nobody: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object) -> None:
        raise CommandError("it refused the login as ada")

    monkeypatch.setattr(watching, "Link", refused)
    with pytest.raises(BrokerGone, match="it refused the login as ada"):
        await Watch(nobody, 0.05).over(asyncio.Event().wait())
    assert "no broker answers at" in capsys.readouterr().err

"""Transactional batches that another node's coordinator admits: in order, and never behind their marker."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pqbroker.broker.node.admissions import ADMISSION_TRIES, Admissions, answer_admission, encode_admission
from pqbroker.broker.peers.link_rules import LinkBusy
from pqbroker.broker.peers.peer_frames import LinkBroken
from pqbroker.broker.peers.peer_link import PeerRefused
from pqbroker.broker.peers.peer_methods import PeerMethod, decode_peer_call, encode_peer_call
from pqbroker.broker.services.transactional_producers.admission import BatchOfTransaction
from pqbroker.broker.services.transactional_producers.rules import Claim
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.coordinator_rows import PartitionId

PARTITION = PartitionId(b"i" * 16, 3)
BATCH = BatchOfTransaction("id", Claim(5, 0), PARTITION, adds=True)


class Coordinator:
    """The other node: answers in any order, when a test says so. `told`: what became of each batch, in order."""

    def __init__(self) -> None:
        self.questions: list[asyncio.Future[bytes]] = []
        self.told: list[tuple[int, ErrorCode | None]] = []
        self.admissions = Admissions(self._ask)

    async def _ask(self, payload: bytes) -> bytes:
        self.questions.append(asyncio.get_running_loop().create_future())
        return await self.questions[-1]

    async def admit(self, number: int) -> None:
        def then(refusal: KafkaError | None) -> None:
            self.told.append((number, None if refusal is None else refusal.code))

        self.admissions.admit(BATCH, then)
        await _turns()

    async def answer(self, number: int, told: Any = None) -> None:
        if isinstance(told, Exception):
            self.questions[number].set_exception(told)
        else:
            self.questions[number].set_result(encode_peer_call(PeerMethod.ADMIT, told))
        await _turns()


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_batches_of_a_producer_are_let_through_in_the_order_in_which_they_came() -> None:
    other = Coordinator()
    for number in range(3):
        await other.admit(number)
    await other.answer(1, [ErrorCode.INVALID_TXN_STATE, "no"])
    await other.answer(2)
    assert other.told == []
    await other.answer(0)
    assert other.told == [(0, None), (1, ErrorCode.INVALID_TXN_STATE), (2, None)]


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_marker_that_comes_in_between_has_the_batch_asked_for_again(is_answered: bool) -> None:
    other = Coordinator()
    await other.admit(0)
    await other.admit(1)
    if is_answered:
        await other.answer(1)
    other.admissions.meet_marker(5, PARTITION)
    other.admissions.meet_marker(6, PARTITION)
    await other.answer(0)
    assert other.told == []
    assert len(other.questions) == 3
    if not is_answered:
        await other.answer(1)
    await other.answer(2, [ErrorCode.INVALID_PRODUCER_EPOCH, "it has ended"])
    assert other.told == [(0, ErrorCode.INVALID_PRODUCER_EPOCH)]
    await other.answer(3)
    assert other.told[1:] == [(1, None)]
    other.admissions.meet_marker(5, PARTITION)


async def test_a_batch_that_markers_pass_again_and_again_is_to_come_again() -> None:
    other = Coordinator()
    await other.admit(0)
    for number in range(ADMISSION_TRIES):
        other.admissions.meet_marker(5, PARTITION)
        await other.answer(number)
    assert other.told == [(0, ErrorCode.CONCURRENT_TRANSACTIONS)]


@pytest.mark.parametrize("told", [PeerRefused("gone"), LinkBusy("full"), "x", [1], ["y", 3], {"a": 1}])
async def test_without_a_true_answer_the_coordinator_is_not_available(told: Any) -> None:
    other = Coordinator()
    await other.admit(0)
    await other.answer(0, told)
    assert other.told == [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)]


async def test_a_question_that_fails_unexpectedly_leaves_no_batch_waiting(caplog: pytest.LogCaptureFixture) -> None:
    other = Coordinator()
    await other.admit(0)
    await other.admit(1)
    await other.answer(1)
    await other.answer(0, OSError("a defect"))
    assert other.told == [(0, ErrorCode.UNKNOWN_SERVER_ERROR), (1, None)]
    assert "a batch could not be asked for; this is a defect" in caplog.text
    await other.admit(2)
    await other.answer(2)
    assert other.told[2:] == [(2, None)]


async def test_a_batch_whose_writing_fails_holds_up_none_behind_it() -> None:
    other, seen = Coordinator(), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))

    def fail(_: KafkaError | None) -> None:
        raise OSError("a defect")

    other.admissions.admit(BATCH, fail)
    await _turns()
    await other.admit(1)
    await other.answer(1)
    await other.answer(0)
    assert other.told == [(1, None)]
    assert [str(error) for error in seen] == ["a defect"]


@pytest.mark.parametrize("adds", [False, True])
async def test_the_coordinator_is_asked_as_for_a_batch_of_its_own(adds: bool) -> None:
    asked: list[Any] = []

    def admit(*question: Any) -> None:
        asked.append(question[:3])
        question[3](KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "busy"))

    def check_added(*question: Any) -> None:
        asked.append(question)

    producers = cast(Any, SimpleNamespace(admit=admit, check_added=check_added))
    _, head, _ = decode_peer_call(encode_admission(BATCH._replace(adds=adds)))
    told = await answer_admission(producers, head)
    assert told == ([ErrorCode.CONCURRENT_TRANSACTIONS, "busy"] if adds else None)
    assert asked == [("id", Claim(5, 0), PARTITION)]
    for wrong in (None, [], ["id", [5], "", 0, True], ["id", [5, 0], "zz", 0, True], ["id", [5, 0], "00", "x", True]):
        with pytest.raises(LinkBroken):
            await answer_admission(producers, wrong)

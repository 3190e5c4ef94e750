"""Only members at the right epoch commit and read offsets of a KIP-848 group."""

import pytest

from pqbroker.broker.services.coordination.modern.commits import (
    check_commit,
    check_read,
    check_transactional_commit,
)
from pqbroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.services.coordination.modern.rig import Rig, topic_id

T = topic_id("t")


@pytest.fixture
def rig() -> Rig:
    """A group of one member, which got partition 0 in epoch 1 and partition 1 in epoch 2."""
    rig = Rig()
    rig.topics.put("t", 1)
    rig.join("a")
    rig.topics.put("t", 2)
    assert rig.beat("a", 2, owned={T: [0]}).epoch == 3
    return rig


def refusal(rig: Rig, member_id: str, epoch: int, *partitions: int, version: int = 9) -> ErrorCode:
    """Return the code with which a commit is refused."""
    try:
        fence = check_commit(rig.group, member_id, epoch, version)
        if fence is not None:
            fence.check((T, index) for index in partitions)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_a_member_commits_in_its_epoch(rig: Rig) -> None:
    assert refusal(rig, "a", 3, 0, 1) is ErrorCode.NONE
    assert refusal(rig, "a", 4, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(rig, "b", 3, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refusal(rig, "", -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_of_an_earlier_epoch_counts_for_what_the_member_had_then(rig: Rig) -> None:
    assert refusal(rig, "a", 2, 0) is ErrorCode.NONE
    assert refusal(rig, "a", 1, 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(rig, "a", 2, 0, 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert refusal(rig, "a", 2, 7) is ErrorCode.STALE_MEMBER_EPOCH


def test_a_member_commits_what_it_is_to_let_go(rig: Rig) -> None:
    rig.join("b")
    rig.beat("a", 3, owned={T: [0, 1]})
    assert rig.group.members["a"].current.revoking
    assert refusal(rig, "a", 2, 0) is ErrorCode.NONE
    assert refusal(rig, "a", 3, 0, 1) is ErrorCode.NONE


def test_a_commit_before_version_9_knows_no_epochs(rig: Rig) -> None:
    assert refusal(rig, "a", 3, 0, version=8) is ErrorCode.UNSUPPORTED_VERSION


def test_anyone_commits_for_a_group_without_members(rig: Rig) -> None:
    rig.beat("a", -1)
    assert refusal(rig, "", -1, 0) is ErrorCode.NONE
    assert refusal(rig, "a", 3, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_names_nobody_commits_in_a_transaction(rig: Rig) -> None:
    assert check_transactional_commit(rig.group, "", None, -1) is None
    for member_id, instance_id, epoch in (("b", None, 3), ("", "i", -1)):
        with pytest.raises(KafkaError) as refused:
            check_transactional_commit(rig.group, member_id, instance_id, epoch)
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, ErrorCode.NONE), ("a", 3, ErrorCode.NONE), ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 4, ErrorCode.STALE_MEMBER_EPOCH), ("b", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 3, ErrorCode.UNKNOWN_MEMBER_ID), ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)  # fmt: skip
def test_a_member_reads_offsets_in_its_epoch(rig: Rig, member_id: str | None, epoch: int, code: ErrorCode) -> None:
    if not code:
        check_read(rig.group, member_id, epoch)
        return
    with pytest.raises(KafkaError) as refused:
        check_read(rig.group, member_id, epoch)
    assert refused.value.code is code

"""What members may hold: of one, of a group, of a node. Counted in work and in bytes."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from pqbroker.broker.services.coordination.classic.member import Member
from pqbroker.broker.services.coordination.classic.memory import GroupMemory, payer_of
from pqbroker.broker.services.coordination.classic.states import GroupState
from pqbroker.protocol.errors import ErrorCode
from pqbroker.storage.tablets.coordinator_rows import MemberProtocol
from tests.broker.services.coordination.classic.rig import LIMITS, Rig

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


def subscription(size: int) -> tuple[MemberProtocol, ...]:
    return (MemberProtocol("range", bytes(size)),)


def test_one_member_has_a_limit() -> None:
    rig = Rig(replace(LIMITS, member_bytes_max=2000))
    refused = rig.joined(rig.enter("a", protocols=subscription(2000)))
    assert (refused.error, "pqbroker.member.metadata.bytes.max" in refused.reason) == (FULL, True)
    many = tuple(MemberProtocol(str(number), b"") for number in range(20))
    assert rig.joined(rig.enter("a", protocols=many)).error is FULL
    assert rig.joined(rig.enter("a", client_id="x" * 2000)).error is FULL
    rig.form("a", protocols=subscription(1000))
    assert rig.group.state is GroupState.STABLE


def test_all_members_of_a_group_have_a_limit() -> None:
    rig = Rig(replace(LIMITS, metadata_bytes_max=4000))
    rig.form("a", protocols=subscription(1000))
    rig.enter("b", protocols=subscription(1000))
    refused = rig.joined(rig.enter("c", protocols=subscription(1000)))
    assert (refused.error, "pqbroker.group.metadata.bytes.max" in refused.reason) == (FULL, True)
    rig.join("a", protocols=subscription(1000))
    assert list(rig.group.members) == ["a", "b"]


def test_a_member_that_outgrows_its_group_is_no_member_any_more() -> None:
    rig = Rig(replace(LIMITS, metadata_bytes_max=4000))
    rig.form("a", "b", protocols=subscription(1000))
    assert rig.joined(rig.join("b", protocols=subscription(3000))).error is FULL
    assert list(rig.group.members) == ["a"]


def test_all_groups_of_a_node_have_a_limit() -> None:
    rig = Rig(memory_bytes_max=5000)
    rig.form("a", protocols=subscription(1000))
    refused = rig.joined(rig.enter("b", protocols=subscription(1500)))
    assert (refused.error, "pqbroker.groups.bytes.max" in refused.reason) == (FULL, True)
    taken = rig.memory.taken
    rig.leave("a")
    assert rig.memory.taken < taken - 1000


def test_a_member_that_was_there_may_rejoin_when_the_node_is_full() -> None:
    rig = Rig(memory_bytes_max=5000)
    rig.form("a", protocols=subscription(1500))
    rig.memory.shares.take("another", 5000)
    rig.join("a", protocols=subscription(1400))
    assert rig.group.state is GroupState.COMPLETING_REBALANCE


def test_an_assignment_that_is_too_large_is_refused_to_all_and_the_group_forms_again() -> None:
    rig = Rig(replace(LIMITS, assignment_bytes_max=1000))
    rig.enter("a")
    rig.enter("b")
    rig.end_rebalance()
    waits = rig.sync("b")
    refused = rig.synced(rig.sync("a", {"a": bytes(2000)}))
    assert (refused.error, "pqbroker.group.assignment.bytes.max" in refused.reason) == (
        ErrorCode.UNKNOWN_SERVER_ERROR, True,
    )  # fmt: skip
    assert rig.synced(waits).error is ErrorCode.UNKNOWN_SERVER_ERROR
    rig.join("a")
    rig.join("b")
    rig.assign()
    assert rig.group.state is GroupState.STABLE


def test_assignments_count_in_the_memory_of_the_node() -> None:
    rig = Rig(memory_bytes_max=10_000)
    rig.enter("a")
    rig.end_rebalance()
    refused = rig.synced(rig.sync("a", {"a": bytes(9000)}))
    assert (refused.error, "pqbroker.groups.bytes.max" in refused.reason) == (ErrorCode.UNKNOWN_SERVER_ERROR, True)
    rig.join("a")
    taken = rig.memory.taken
    rig.sync("a", {"a": bytes(2000)})
    assert rig.memory.taken >= taken + 2000


def test_ids_given_out_count_as_members() -> None:
    rig = Rig(replace(LIMITS, members_max=2))
    given = rig.joined(rig.join(new="a"))
    assert given.error is ErrorCode.MEMBER_ID_REQUIRED
    assert rig.joined(rig.join(new="b")).error is ErrorCode.MEMBER_ID_REQUIRED
    refused = rig.joined(rig.join(new="c"))
    assert (refused.error, "group.max.size" in refused.reason) == (FULL, True)
    rig.join("a")
    rig.join("b")
    rig.end_rebalance()
    assert list(rig.group.members) == ["a", "b"]


def test_an_id_that_is_not_used_gives_its_memory_back() -> None:
    rig = Rig()
    taken = rig.memory.taken
    rig.join(new="a")
    assert rig.memory.taken > taken
    rig.advance(60_000)
    assert rig.memory.taken == taken


def lines_of(work: Callable[[], None]) -> int:
    """How many lines of the broker's groups run: the work, whatever the machine."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if "/coordination/classic/" not in frame.f_code.co_filename or "/tests/" in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("requires_known_id", [True, False])
def test_joins_and_syncs_cost_as_much_for_each_member_in_a_large_group(requires_known_id: bool) -> None:
    def work(members: int) -> int:
        rig = Rig(replace(LIMITS, members_max=10_000))

        def form() -> None:
            for number in range(members):
                rig.join(new=f"m{number}", requires_known_id=requires_known_id)
                if requires_known_id:
                    rig.join(f"m{number}")
            rig.end_rebalance()
            rig.sync_all(dict.fromkeys(rig.group.members, b"x"))
            assert rig.group.state is GroupState.STABLE

        return lines_of(form)

    assert work(400) < 2.5 * work(200)


def test_a_member_counts_its_texts_in_bytes() -> None:
    member = Member("m", None, "ключ", "", 1, 1, subscription(10))
    assert member.metadata_bytes == 512 + 1 + 8 + 128 + 5 + 10


def test_groups_of_one_address_leave_room_for_those_of_another() -> None:
    memory = GroupMemory(64 << 20)
    payers = [payer_of(host) for host in ("192.0.2.1", "2001:db8::1", "2001:db8::2", "127.0.0.1", "a row's: text")]
    assert payers == ["192.0.2.1", "2001:db8::/64", "2001:db8::/64", "127.0.0.1", "a row's: text"]
    memory.shares.take("192.0.2.1", 56 << 20)
    assert not memory.has_room(1, "192.0.2.1")
    assert memory.has_room(1 << 20, "192.0.2.2")
    assert not memory.has_room(2 << 20, "192.0.2.2")

"""Members that bring megabytes, and groups of them by the hundred."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pqbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.attacked import TURN_EVER_S_MAX, attacked

MIB = 1 << 20
ALMOST = MIB - 2000
GROUPS = 54
BEFORE_KNOWN_IDS = 3


def test_groups_of_members_with_as_much_metadata_as_they_may_have() -> None:
    with attacked(turn_s_max=TURN_EVER_S_MAX) as node:
        attackers = [node.connect() for _ in range(GROUPS)]
        answers = [one.ask(_join(f"{n}", ALMOST), BEFORE_KNOWN_IDS) for n, one in enumerate(attackers)]
        assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * GROUPS
        for number, attacker in enumerate(attackers):
            attacker.send(_join(f"{number}", ALMOST), BEFORE_KNOWN_IDS)
        other = node.connect()
        too_much = other.ask(_join("other", 2 * MIB), BEFORE_KNOWN_IDS)
        assert too_much.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        for attacker in (*attackers, other):
            attacker.close()


def test_a_group_over_the_node_s_limit_is_refused_and_an_assignment_over_the_group_s() -> None:
    settings = {"pqbroker.groups.bytes.max": str(8 * MIB)}
    with attacked(settings, turn_s_max=TURN_EVER_S_MAX) as node:
        leader = node.connect()
        joined = leader.ask(_join("first", ALMOST), BEFORE_KNOWN_IDS)
        assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(9 * MIB))
        asked = SyncGroupRequest(
            group_id="first", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
        )
        assert leader.ask(asked, 3).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "pqbroker.group.assignment.bytes.max" in node.broker.log
        others = [node.connect() for _ in range(12)]
        codes = [other.ask(_join(f"{n}", ALMOST), BEFORE_KNOWN_IDS).error_code for n, other in enumerate(others)]
        assert codes[:5] == [ErrorCode.NONE] * 5
        assert codes[6:] == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 6
        assert "pqbroker.groups.bytes.max" in node.broker.log
        for each in (leader, *others):
            each.close()


def _join(group: str, size: int) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(size))]
    return JoinGroupRequest(
        group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id="", protocol_type="consumer",
        protocols=protocols,
    )  # fmt: skip

"""How a coordinator tablet stores a group: one row of its table, the members in it."""

from typing import Any

from pqbroker.broker.groups.messages import GroupImage, MemberImage, MemberProtocol
from pqbroker.storage.tables import Row, Transaction

TABLE = "groups"
_COLUMNS = ("generation", "protocol_type", "protocol", "leader", "state_since_ms", "members")


def put_group(transaction: Transaction, image: GroupImage, state_since_ms: int) -> None:
    """`state_since_ms`: milliseconds since 1970."""
    if TABLE not in transaction.tables:
        transaction.create_table(TABLE, [("group_id", "str")], _COLUMNS)
    row: dict[str, Any] = {
        "generation": image.generation,
        "protocol_type": image.protocol_type,
        "protocol": image.protocol,
        "leader": image.leader,
        "state_since_ms": state_since_ms,
        "members": [_member_fields(member) for member in image.members],
    }
    transaction.put(TABLE, (image.group_id,), row)


def delete_group(transaction: Transaction, group_id: str) -> None:
    if TABLE in transaction.tables:
        transaction.delete(TABLE, (group_id,))


def read_group(group_id: str, row: Row) -> tuple[GroupImage, int]:
    """The group and since when it has been so."""
    fields: Any = row
    image = GroupImage(
        group_id=group_id,
        generation=fields["generation"],
        protocol_type=fields["protocol_type"],
        protocol=fields["protocol"],
        leader=fields["leader"],
        members=tuple(_read_member(member) for member in fields["members"]),
    )
    return image, fields["state_since_ms"]


def _member_fields(member: MemberImage) -> dict[str, Any]:
    return {
        "id": member.member_id,
        "instance": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "protocols": [[offered.name, offered.metadata] for offered in member.protocols],
        "assignment": member.assignment,
    }


def _read_member(fields: dict[str, Any]) -> MemberImage:
    return MemberImage(
        member_id=fields["id"],
        instance_id=fields["instance"],
        client_id=fields["client_id"],
        client_host=fields["client_host"],
        session_timeout_ms=fields["session_timeout_ms"],
        rebalance_timeout_ms=fields["rebalance_timeout_ms"],
        protocols=tuple(MemberProtocol(*offered) for offered in fields["protocols"]),
        assignment=fields["assignment"],
    )

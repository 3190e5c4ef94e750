"""Rules for the ids of consumer groups, and the check that there is room for another group."""

from pqbroker.broker.services.coordination.classic.memory import group_bytes, text_bytes
from pqbroker.broker.services.coordination.classic.messages import GroupLimits
from pqbroker.protocol.errors import ErrorCode, KafkaError


def check_group_id(group_id: str) -> None:
    """INVALID_GROUP_ID for the empty text; everything else is a name. Offsets may belong to the empty text too."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs an id: set group.id")


def check_new_group(group_id: str, limits: GroupLimits, payer: str) -> None:
    """INVALID_GROUP_ID for an id that is too long, GROUP_MAX_SIZE_REACHED when the node has no room for a group.

    `payer`: the address that the group would count for.
    """
    size = text_bytes(group_id)
    if size > limits.id_bytes_max:
        text = f"a group id of {size} bytes, the limit is {limits.id_bytes_max}: shorten it, or raise "
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, text + "pqbroker.group.id.bytes.max")
    if not limits.memory.has_room(group_bytes(group_id), payer):
        memory = limits.memory
        text = (
            f"groups take {memory.taken} bytes, those of {payer} {memory.shares.of(payer)}; an eighth of "
            f"{memory.bytes_max} is kept for others: delete one, or raise pqbroker.groups.bytes.max"
        )
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)

"""What a consumer group may be called."""

from pqbroker.protocol.errors import ErrorCode, KafkaError


def check_group_id(group_id: str) -> None:
    """INVALID_GROUP_ID for the empty text; everything else is a name. Offsets may belong to the empty text too."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs an id: set group.id")

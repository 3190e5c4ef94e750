"""DeleteTopics (key 20): delete topics, by id or name from version 6."""

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.schema import ERROR_CODE, INT32, STRING, UUID, array, field, request, response, struct


@struct
class DeleteTopicState:
    name: str | None = field(STRING, nullable="0+", default=None)
    topic_id: bytes = field(UUID)


@request(20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = field(array(DeleteTopicState), "6+")
    topic_names: list[str] = field(array(STRING), "1-5")
    timeout_ms: int = field(INT32)


@struct
class DeletableTopicResult:
    name: str | None = field(STRING, nullable="6+")
    topic_id: bytes = field(UUID, "6+")
    error_code: ErrorCode = field(ERROR_CODE)
    error_message: str | None = field(STRING, "5+", nullable="5+", default=None)


@response(20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = field(INT32)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))

"""Errors of the HTTP side: {"error": {"code", "message", "cure"}} and its status. Kafka's codes keep their names."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pqbroker.broker.ground.refusals import REFUSED, translate
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, Schema, object_of
from pqbroker.pq.log.partition_settings import TabletClosed
from pqbroker.protocol.errors import ErrorCode

ERROR: Schema = object_of({"error": object_of({"code": TEXT, "message": TEXT, "cure": TEXT}, {"number": COUNT})})


class Problem(Exception):
    """A refusal: HTTP status, a code for programs, cause and cure for people."""

    def __init__(self, status: int, code: str, message: str, cure: str, number: int | None = None) -> None:
        """`number`: the code's number in YT, where it has one."""
        super().__init__(message)
        self.number = number
        self.status = status
        self.code = code
        self.message = message
        self.cure = cure

    def document(self) -> dict[str, Any]:
        numbered = {} if self.number is None else {"number": self.number}
        return {"error": {"code": self.code, "message": self.message, "cure": self.cure, **numbered}}


ENDING: Final[tuple[type[Exception], ...]] = (Problem, *REFUSED)
"""Errors that a stream may end with: `of_error` says how."""


class _Meaning(NamedTuple):
    status: int
    cure: str


_RETRY = "Try again in a moment; /health tells when the node serves."
_PERMISSION = "Ask the administrator of this broker for the permission."
_DOCUMENT = "See /v1/openapi.json for what this path takes."
_MEANINGS: Mapping[ErrorCode, _Meaning] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _Meaning(404, "GET /v1/topics lists the topics, /v1/topics/NAME partitions."),
    ErrorCode.INVALID_TOPIC_EXCEPTION: _Meaning(400, "Choose another name."),
    ErrorCode.TOPIC_ALREADY_EXISTS: _Meaning(409, "Choose another name, or delete the topic first."),
    ErrorCode.INVALID_PARTITIONS: _Meaning(400, "Give a count within the limits; a topic can only grow."),
    ErrorCode.INVALID_CONFIG: _Meaning(400, "GET /v1/topics/NAME/configs lists names, values and meanings."),
    ErrorCode.INVALID_REQUEST: _Meaning(400, _DOCUMENT),
    ErrorCode.INVALID_RECORD: _Meaning(
        400,
        "Give records of a compacted topic a key, and those of a table the values of its schema; to look into large "
        "batches raise pqbroker.http.look.bytes.max.",
    ),
    ErrorCode.INVALID_TIMESTAMP: _Meaning(400, "Give a timestamp in milliseconds within the topic's limits."),
    ErrorCode.OFFSET_OUT_OF_RANGE: _Meaning(400, "GET /v1/topics/NAME shows where each partition starts and ends."),
    ErrorCode.MESSAGE_TOO_LARGE: _Meaning(413, "Send fewer records at once, or raise max.message.bytes of the topic."),
    ErrorCode.POLICY_VIOLATION: _Meaning(409, "Change what the message names: a limit, a setting, or the request."),
    ErrorCode.CORRUPT_MESSAGE: _Meaning(500, "The log says what is damaged; start behind the damaged offset."),
    ErrorCode.KAFKA_STORAGE_ERROR: _Meaning(503, "See to the disk's room and health, then try again."),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _Meaning(503, _RETRY),
    ErrorCode.LEADER_NOT_AVAILABLE: _Meaning(409, "POST /v1/tables/NAME/mount mounts the tablets of a table."),
    ErrorCode.REQUEST_TIMED_OUT: _Meaning(503, _RETRY),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _Meaning(503, _RETRY),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _Meaning(
        503, "See to what the message names; /health tells when the node serves."
    ),
    ErrorCode.NOT_COORDINATOR: _Meaning(503, _RETRY),
    ErrorCode.GROUP_ID_NOT_FOUND: _Meaning(404, "GET /v1/groups lists the groups."),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: _Meaning(404, "GET /v1/transactional-ids lists the transactional ids."),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _Meaning(403, _PERMISSION),
    ErrorCode.NON_EMPTY_GROUP: _Meaning(409, "Stop its members first; GET /v1/groups/NAME lists them."),
    ErrorCode.ILLEGAL_GENERATION: _Meaning(409, "Stop this reader, or begin a session of a higher generation."),
    ErrorCode.PRODUCER_FENCED: _Meaning(409, "Begin another transaction: its producer was initialised again."),
    ErrorCode.INVALID_PRODUCER_EPOCH: _Meaning(409, "Initialise the producer again, and begin another transaction."),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: _Meaning(409, "Initialise the producer again, and begin another one."),
    ErrorCode.INVALID_TXN_STATE: _Meaning(409, "Leave the end of the producer's transaction to this one."),
    ErrorCode.CONCURRENT_TRANSACTIONS: _Meaning(503, "Try again: the producer's transaction before is being ended."),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: _Meaning(400, "Give less text, or raise offset.metadata.max.bytes."),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _Meaning(403, _PERMISSION),
    ErrorCode.SECURITY_DISABLED: _Meaning(409, "docs/access-rules.md says how access rules are turned on."),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _Meaning(403, _PERMISSION),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _Meaning(403, _PERMISSION),
    ErrorCode.INVALID_UPDATE_VERSION: _Meaning(400, "GET /v1/features lists the features and their levels."),
    ErrorCode.RESOURCE_NOT_FOUND: _Meaning(404, "GET /v1/users lists the users, /v1/tokens their tokens."),
    ErrorCode.UNACCEPTABLE_CREDENTIAL: _Meaning(400, "Give another name or password, as the message says."),
    ErrorCode.INVALID_GROUP_ID: _Meaning(400, "Give the name of a group."),
}
_UNFORESEEN = _Meaning(500, "Look into the broker's log.")


def of_kafka(code: ErrorCode, message: str) -> Problem:
    """A Kafka error as a problem."""
    meaning = _MEANINGS.get(code, _UNFORESEEN)
    return Problem(meaning.status, code.name, message or code.name, meaning.cure)


def of_error(error: BaseException) -> Problem:
    """Make a problem of a lower floor's refusal. A tablet's state has one code here, also where Kafka has several."""
    if isinstance(error, Problem):
        return error
    code, message = translate(error)
    if isinstance(error, TabletClosed):
        return Problem(409, "WRONG_STATE", message, error.cure)
    return of_kafka(code, message)


def bad_request(message: str) -> Problem:
    return Problem(400, "INVALID_REQUEST", message, _DOCUMENT)


def of_status(status: int, method: str, path: str, allowed: str) -> Problem:
    """A refusal of the HTTP server itself."""
    if status == 404:
        return Problem(404, "NOT_FOUND", f"there is nothing at {path}", "See /v1/openapi.json for the paths there are.")
    if status == 405:
        return Problem(405, "METHOD_NOT_ALLOWED", f"{path} cannot be asked with {method}", f"Use {allowed}.")
    return Problem(status, "REFUSED", f"the request was refused with status {status}", _DOCUMENT)


def too_large(bytes_max: int) -> Problem:
    return Problem(
        413, "BODY_TOO_LARGE", f"the body is larger than pqbroker.http.body.bytes.max = {bytes_max}",
        "Send less at once, use a Kafka client, or raise the setting.",
    )  # fmt: skip


def too_many_objects(message: str) -> Problem:
    cure = "Send fewer rows, records or items at once, or raise pqbroker.http.body.objects.max."
    return Problem(413, "BODY_TOO_LARGE", message, cure)


def too_much_at_once(what: str) -> Problem:
    return Problem(
        503, "TOO_MUCH_AT_ONCE",
        f"HTTP bodies and answers fill pqbroker.http.inflight.bytes.max; it has no room for the {what}",
        "Try again, ask for less at once, or raise the setting.",
    )  # fmt: skip


def too_many_followers(most: int) -> Problem:
    return Problem(
        503, "TOO_MANY_FOLLOWERS", f"the broker has {most} streams under way, as many as it may have",
        "Close one, or raise pqbroker.http.followers.max.",
    )  # fmt: skip


def unknown_host(host: str) -> Problem:
    return Problem(
        421, "UNKNOWN_HOST", f"the request is for the host {host!r}, which is no name of this broker",
        "Use its IP address, or add the name to pqbroker.http.hosts.",
    )  # fmt: skip


def unknown_origin(origin: str) -> Problem:
    return Problem(
        421, "UNKNOWN_ORIGIN", f"a web page of {origin!r} sent the request, which is no name of this broker",
        "Use the broker's own pages, send the request without a browser, or add the name to pqbroker.http.hosts.",
    )  # fmt: skip


def foreign_origin(origin: str) -> Problem:
    return Problem(
        403, "FOREIGN_ORIGIN", f"a web page of {origin!r} sent the request",
        "Pages of other sites may change nothing here; send the request without a browser.",
    )  # fmt: skip


def unreadable(status: int, why: str) -> Problem:
    """Return the problem of what is no HTTP, or has a longer line than is read; `why` may show it, behind a colon."""
    cause = why.partition("\n")[0].partition(":")[0] or "it is no HTTP"
    return Problem(
        status, "UNREADABLE_REQUEST", f"the request cannot be read: {cause}",
        "Send HTTP/1.1, with an address and headers of at most 8190 bytes each.",
    )  # fmt: skip


def not_json(content_type: str) -> Problem:
    """A browser may send other types across sites without asking: only what it must ask for is taken."""
    return Problem(
        415, "NOT_JSON", f"the body has the type {content_type or 'none'}",
        "Send Content-Type: application/json (curl: -H 'Content-Type: application/json').",
    )  # fmt: skip

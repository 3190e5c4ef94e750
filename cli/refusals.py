"""Reasons why a command is not carried out: what was wrong and what to do, in the user's words; Kafka's codes too."""

import difflib
from collections.abc import Iterable

from pqbroker.protocol.errors import ErrorCode

_NEAR_MAX = 3

_WORDS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic's name has 1 to 249 of ASCII letters, digits, '.', '_' and '-'",
    ErrorCode.MESSAGE_TOO_LARGE: "the record is larger than the topic's max.message.bytes",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the broker has no coordinator of consumer groups",
    ErrorCode.TOPIC_ALREADY_EXISTS: "there is such a topic already",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not serve this request",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop them first",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group's members read this topic; stop them first",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside the partition's records",
    ErrorCode.INVALID_RECORD: "the topic does not take such a record: one without a key where it is compacted, or one"
    " that is no row of its schema, which `pqbroker table describe` shows",
    ErrorCode.POLICY_VIOLATION: "a rule of the topic refuses it: it is full, closed by a"
    " setting, the change feed of a table, or a tablet of a table that `pqbroker table unfreeze` opens again",
    ErrorCode.LEADER_NOT_AVAILABLE: "nobody leads it now; a tablet of a table that is unmounted is led again once"
    " `pqbroker table mount` has mounted it",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the broker does not serve it now; `pqbroker cell list` shows cells that"
    " are not open",
    ErrorCode.NOT_COORDINATOR: "the broker does not coordinate the group now, or does not know all its offsets;"
    " `pqbroker cell list` shows cells that are not open",
    ErrorCode.KAFKA_STORAGE_ERROR: "its store takes no writes, most often since the disk is full;"
    " `pqbroker cluster health` shows the cause and the cure",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker has delete.topic.enable=false",
}


class CommandError(Exception):
    """The command failed or cannot be done: exit status 1. The text names cause and cure."""


class WrongInput(CommandError):
    """Invalid input: exit status 2, and the command's right form is shown."""


class OutputClosed(Exception):
    """The reader of our output, such as `head`, has enough: nothing went wrong."""


def with_cure(message: str, cure: str) -> str:
    """Return message and cure as one text; a message may end with a question."""
    return f"{message}{'' if message.endswith('?') else '.'} {cure}"


def words(code: ErrorCode, message: str | None = None) -> str:
    """Return the meaning of a Kafka error code: the broker's own message if it sent one."""
    return message or _WORDS.get(code) or code.name.lower().replace("_", " ")


def check(code: ErrorCode, what: str, message: str | None = None) -> None:
    """CommandError, which says what could not be done, unless the code is NONE."""
    if code:
        raise CommandError(f"{what}: {words(code, message)}")


def near(name: str, known: Iterable[str]) -> str:
    """`did you mean …?` when something known is spelled nearly so, else an empty text."""
    found = difflib.get_close_matches(name, list(known), n=_NEAR_MAX)
    return f"did you mean {' or '.join(found)}?" if found else ""

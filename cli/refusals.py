"""Reasons why a command is not carried out: what was wrong and what to do, in the user's words; Kafka's codes too."""

import difflib
import re
from collections.abc import Iterable

from pqbroker.protocol.errors import ErrorCode

_NEAR_MAX = 3
_NEAR_BEST = 0.1
"""Likeness by which a word may be behind the most like one, and still be suggested beside it."""
_LETTERS_PER_SLIP = 6
_NAME_LETTERS_MIN = 3
_NUMBER = re.compile(r"[-_.]?[0-9]+")

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

_CURES = {
    ErrorCode.SECURITY_DISABLED: "Access rules are off: start the broker with the setting authorizer.class.name, as in"
    " docs/access-rules.md.",
}
"""Cures, for codes whose message from a broker names the cause only."""


class CommandError(Exception):
    """The command failed or cannot be done: exit status 1. The text names cause and cure."""


class WrongInput(CommandError):
    """Invalid input: exit status 2, and the command's right form is shown."""


class OutputClosed(Exception):
    """The reader of our output, such as `head`, has enough: nothing went wrong."""


def with_cure(message: str, cure: str) -> str:
    """Return message and cure as one text; a message may end with a question or a full stop."""
    return f"{message}{'' if message.endswith(('?', '.')) else '.'} {cure}"


def words(code: ErrorCode, message: str | None = None) -> str:
    """Return the meaning of a Kafka error code: the broker's own message if it sent one."""
    return message or _WORDS.get(code) or code.name.lower().replace("_", " ")


def check(code: ErrorCode, what: str, message: str | None = None) -> None:
    """CommandError, which says what could not be done, unless the code is NONE."""
    if code:
        text = f"{what}: {words(code, message)}"
        raise CommandError(with_cure(text, _CURES[code]) if code in _CURES else text)


def near(name: str, known: Iterable[str]) -> str:
    """`did you mean …?` when a word of ours, such as an option, is spelled nearly so; else an empty text."""
    spelled = {each.lstrip("-"): each for each in known}  # dashes, which all options have, are no likeness
    found = difflib.get_close_matches(name.lstrip("-"), spelled, n=_NEAR_MAX)
    likeness = {each: difflib.SequenceMatcher(None, name.lstrip("-"), each).ratio() for each in found}
    least = max(likeness.values(), default=0.0) - _NEAR_BEST
    return _question([spelled[each] for each, like in likeness.items() if like > least])


def near_name(name: str, known: Iterable[str]) -> str:
    """`did you mean …?` when a name of the user's, such as a topic, looks like one mistyped; else an empty text.

    Where a name differs from a known one by a number alone it was meant: orders-2 beside orders-1. So was a short one.
    """
    among = list(known)
    if len(name) < _NAME_LETTERS_MIN or _NUMBER.sub("", name) in {_NUMBER.sub("", each) for each in among}:
        return ""
    slips = {each: _slips(name, each) for each in difflib.get_close_matches(name, among, n=_NEAR_MAX)}
    least = min(slips.values(), default=0)
    return _question([each for each, count in slips.items() if count == least <= 1 + len(name) // _LETTERS_PER_SLIP])


def _question(found: list[str]) -> str:
    return f"did you mean {' or '.join(found)}?" if found else ""


def _slips(name: str, other: str) -> int:
    """Return how many letters were left out, added or exchanged between two names."""
    before = list(range(len(other) + 1))
    for row, letter in enumerate(name.lower(), 1):
        line = [row]
        for column, one in enumerate(other.lower(), 1):
            line.append(min(before[column] + 1, line[-1] + 1, before[column - 1] + (letter != one)))
        before = line
    return before[-1]

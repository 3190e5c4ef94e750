"""Names that a topic may have: Kafka's rule (semantics G.1)."""

import re

from pqbroker.protocol.errors import ErrorCode, KafkaError

NAME_CHARACTERS_MAX = 249
CLUSTER_METADATA = "__cluster_metadata"
"""Kafka's topic of the cluster's own log, which no client may create."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """KafkaError INVALID_TOPIC_EXCEPTION, with the reason, unless a topic may be called so."""
    reason = _objection(name)
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def _objection(name: str) -> str:
    if not name:
        return "a topic's name cannot be empty"
    if name in (".", ".."):
        return "a topic cannot be named '.' or '..'"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"a topic's name has at most {NAME_CHARACTERS_MAX} characters, this one {len(name)}"
    if not _LEGAL.fullmatch(name):
        return "a topic's name holds only ASCII letters, digits, '.', '_' and '-'"
    return ""

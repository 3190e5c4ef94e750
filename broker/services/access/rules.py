"""Access rules as Kafka has them (KIP-11, KIP-290): what one says, which are valid, which a filter matches. Pure.

A rule allows or denies a principal an operation, from a host, on the resources that a pattern names. The numbers are
Kafka's codes; stored rules have them too.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from pqbroker.broker.ground.access import CLUSTER, AclKind, AclOperation
from pqbroker.protocol.errors import ErrorCode, KafkaError

ANY_CODE: Final = 1
"""Code that matches every value of a filter's field."""
MATCH: Final = 2
"""Type of pattern in a filter: every pattern that matches the name."""
WILDCARD: Final = "*"
"""Name of the literal pattern of every resource, and the host of every client."""
EVERY_USER: Final = "User:*"
"""Principal of a rule for everybody."""


class AclPattern(IntEnum):
    """Ways in which the name of a rule stands for resources."""

    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """Decisions of a rule."""

    DENY = 2
    ALLOW = 3


class AclRule(NamedTuple):
    """One rule. Two rules that say the same are one rule."""

    kind: AclKind
    pattern: AclPattern
    name: str
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        resource = f"{self.kind.name.lower()} {self.name}" + ("*" if self.pattern is AclPattern.PREFIXED else "")
        return f"{self.permission.name.lower()} {self.principal} {self.operation.name} on {resource} from {self.host}"


def read_rule(stored: Mapping[str, Any]) -> AclRule:
    """Return the rule that codes and texts by field stand for. ValueError where a code is unknown or a text no text."""
    texts = [stored[name] for name in ("name", "principal", "host")]
    if not all(type(text) is str for text in texts):
        raise ValueError(f"name, principal and host of an access rule are texts, not {texts}")
    codes = {name: values(stored[name]) for name, _, values in _CODES}
    return AclRule(**{**stored, **codes})


_CODES: Final[tuple[tuple[str, str, type[IntEnum]], ...]] = (
    ("kind", "resourceType", AclKind),
    ("pattern", "patternType", AclPattern),
    ("operation", "operation", AclOperation),
    ("permission", "permissionType", AclPermission),
)
"""Each coded field, its name in Kafka's messages, and its values."""
_CODE_NAMES: Final[Mapping[str, Mapping[int, str]]] = {"pattern": {ANY_CODE: "ANY", MATCH: "MATCH"}}


def new_rule(asked: Mapping[str, Any], bytes_max: int) -> AclRule:
    """Return the rule that a client asks for, after Kafka's checks, in Kafka's words. KafkaError INVALID_REQUEST.

    `bytes_max`: bytes that name, principal and host may have together.
    """
    if asked["kind"] == AclKind.CLUSTER and asked["name"] != CLUSTER.name:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER.name}")
    if not asked["name"]:
        raise _invalid("Invalid empty resource name")
    for field, called, values in _CODES:
        code = asked[field]
        if code not in list(values):
            raise _invalid(f"Invalid {called} {_CODE_NAMES.get(field, {ANY_CODE: 'ANY'}).get(code, 'UNKNOWN')}")
    kind, colon, _ = asked["principal"].partition(":")
    if not colon or not kind:
        raise _invalid(
            f"Could not parse principal from `{asked['principal']}` (no colon is present separating the principal "
            "type from the principal name)"
        )
    size = sum(len(asked[field].encode()) for field in ("name", "principal", "host"))
    if size > bytes_max:
        raise _invalid(f"the rule's texts have {size} bytes; the most allowed is {bytes_max} (pqbroker.acl.bytes.max)")
    return read_rule(asked)


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)


class RuleFilter(NamedTuple):
    """Rules that a client names. None: whatever the text; ANY_CODE: whatever the code."""

    kind: int = ANY_CODE
    pattern: int = ANY_CODE
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = ANY_CODE
    permission: int = ANY_CODE

    def check(self) -> None:
        """KafkaError INVALID_REQUEST for a code that Kafka does not know."""
        for field, _, values in _CODES:
            code = getattr(self, field)
            if code not in list(values) and code != ANY_CODE and not (field == "pattern" and code == MATCH):
                raise _invalid("Unknown patternFilter." if field in ("kind", "pattern") else "Unknown entryFilter.")

    def matches(self, rule: AclRule) -> bool:
        """Return True if the filter names the rule."""
        return (
            self.kind in (ANY_CODE, rule.kind)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (ANY_CODE, rule.operation)
            and self.permission in (ANY_CODE, rule.permission)
            and self._matches_pattern(rule)
        )

    def _matches_pattern(self, rule: AclRule) -> bool:
        if self.pattern not in (ANY_CODE, MATCH, rule.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern != MATCH or rule.pattern == MATCH:
            return self.name == rule.name
        if rule.pattern is AclPattern.LITERAL:
            return rule.name in (self.name, WILDCARD)
        return self.name.startswith(rule.name)

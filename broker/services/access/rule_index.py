"""Access rules, found by principal and resource, and how they decide. Pure.

A resource has the rules of its literal pattern, of the wildcard, and of every prefix of its name. One that denies wins
over all that allow. A rule counts for its principal alone, or for every user.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Final

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource
from pqbroker.broker.services.access.rules import EVERY_USER, WILDCARD, AclPattern, AclPermission, AclRule

_ALLOWED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    **{operation: frozenset({operation, AclOperation.ALL}) for operation in AclOperation},
    AclOperation.DESCRIBE: frozenset({
        AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER,
        AclOperation.ALL,
    }),
    AclOperation.DESCRIBE_CONFIGS: frozenset({
        AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL,
    }),
}  # fmt: skip
"""Operations in rules that allow an operation. A rule that denies one denies nothing else."""


class RuleIndex:
    """All access rules. Only `add` and `remove` change it."""

    __slots__ = ("_by_principal", "_every", "rules")

    def __init__(self) -> None:
        self.rules: dict[AclRule, None] = {}
        self._by_principal: dict[str, dict[AclKind, _Patterns]] = {}
        self._every: dict[AclKind, _Patterns] = {}

    def add(self, rule: AclRule) -> None:
        if rule not in self.rules:
            self.rules[rule] = None
            for kinds in (self._by_principal.setdefault(rule.principal, {}), self._every):
                kinds.setdefault(rule.kind, _Patterns()).add(rule)

    def remove(self, rule: AclRule) -> None:
        if rule not in self.rules:
            return
        del self.rules[rule]
        owned = self._by_principal[rule.principal]
        for kinds in (owned, self._every):
            kinds[rule.kind].remove(rule)
            if not kinds[rule.kind]:
                del kinds[rule.kind]
        if not owned:
            del self._by_principal[rule.principal]

    def decide(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> bool | None:
        """Return True if a rule allows and none denies; None where no rule, of whomever, is for the resource."""
        allowed, allowing = False, _ALLOWED_BY[operation]
        for rule in self._matching(principal, resource):
            if not is_from(rule, host):
                continue
            if rule.permission is AclPermission.ALLOW:
                allowed = allowed or rule.operation in allowing
            elif rule.operation in (operation, AclOperation.ALL):
                return False
        if allowed:
            return True
        every = self._every.get(resource.kind)
        return None if every is None or not every.has(resource.name) else False

    def decide_any(self, principal: str, host: str, operation: AclOperation, kind: AclKind) -> bool:
        """Return True if rules allow the operation on some name that no pattern denies as a whole, as Kafka looks for
        it: operations that imply it do not count."""
        exact = (operation, AclOperation.ALL)
        counting = [
            rule for rule in self._of_kind(principal, kind) if rule.operation in exact and is_from(rule, host)
        ]
        denied = {(rule.pattern, rule.name) for rule in counting if rule.permission is AclPermission.DENY}
        if (AclPattern.LITERAL, WILDCARD) in denied:
            return False
        lengths = {len(name) for pattern, name in denied if pattern is AclPattern.PREFIXED}
        return any(
            rule.permission is AclPermission.ALLOW and _is_left(rule, denied, lengths) for rule in counting
        )

    def _matching(self, principal: str, resource: AclResource) -> Iterator[AclRule]:
        for owner in (principal, EVERY_USER):
            kinds = self._by_principal.get(owner)
            patterns = None if kinds is None else kinds.get(resource.kind)
            if patterns is not None:
                yield from patterns.matching(resource.name)

    def _of_kind(self, principal: str, kind: AclKind) -> Iterator[AclRule]:
        for owner in (principal, EVERY_USER):
            patterns = self._by_principal.get(owner, {}).get(kind)
            if patterns is not None:
                yield from patterns


def _is_left(rule: AclRule, denied: set[tuple[AclPattern, str]], lengths: set[int]) -> bool:
    """Return True if some name of an allowing rule's pattern is not denied. `lengths`: those of denied prefixes."""
    if rule.pattern is AclPattern.LITERAL and rule.name == WILDCARD:
        return True
    if rule.pattern is AclPattern.LITERAL and (AclPattern.LITERAL, rule.name) in denied:
        return False
    name = rule.name
    return not any(length <= len(name) and (AclPattern.PREFIXED, name[:length]) in denied for length in lengths)


def is_from(rule: AclRule, host: str) -> bool:
    """Return True if the rule counts for a client of that address."""
    return rule.host in (WILDCARD, host) or (":" in rule.host and normal_host(rule.host) == host)


def normal_host(host: str) -> str:
    """Return an address as Python writes it, an IPv4 one without IPv6 before it; another text as it is.

    Java writes IPv6 addresses without `::`, so rules made by Kafka's tools have them in full.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(address if mapped is None else mapped)


class _Patterns:
    """Rules of one kind of resource, by pattern."""

    __slots__ = ("_lengths", "_literal", "_prefixed")

    def __init__(self) -> None:
        self._literal: dict[str, dict[AclRule, None]] = {}
        self._prefixed: dict[str, dict[AclRule, None]] = {}
        self._lengths: dict[int, int] = {}
        """Count of prefixes by length."""

    def __bool__(self) -> bool:
        return bool(self._literal or self._prefixed)

    def __iter__(self) -> Iterator[AclRule]:
        for rules in (*self._literal.values(), *self._prefixed.values()):
            yield from rules

    def add(self, rule: AclRule) -> None:
        names = self._names(rule)
        if rule.name not in names:
            names[rule.name] = {}
            if names is self._prefixed:
                self._lengths[len(rule.name)] = self._lengths.get(len(rule.name), 0) + 1
        names[rule.name][rule] = None

    def remove(self, rule: AclRule) -> None:
        names = self._names(rule)
        del names[rule.name][rule]
        if names[rule.name]:
            return
        del names[rule.name]
        if names is self._prefixed:
            self._lengths[len(rule.name)] -= 1
            if not self._lengths[len(rule.name)]:
                del self._lengths[len(rule.name)]

    def matching(self, name: str) -> Iterable[AclRule]:
        """Return the rules whose patterns the name matches."""
        found: list[AclRule] = []
        for literal in (name, WILDCARD) if name != WILDCARD else (name,):
            found += self._literal.get(literal, ())
        for length in self._lengths:
            if length <= len(name):
                found += self._prefixed.get(name[:length], ())
        return found

    def has(self, name: str) -> bool:
        """Return True if a pattern matches the name."""
        if name in self._literal or WILDCARD in self._literal:
            return True
        return any(length <= len(name) and name[:length] in self._prefixed for length in self._lengths)

    def _names(self, rule: AclRule) -> dict[str, dict[AclRule, None]]:
        return self._literal if rule.pattern is AclPattern.LITERAL else self._prefixed

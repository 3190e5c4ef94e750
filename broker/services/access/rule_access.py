"""Decisions by access rules, as Apache Kafka's StandardAuthorizer makes them. Not how rules are stored or changed.

Super users may do everything. For others the rules decide; where none is for the resource, one setting does. Decisions
are kept until rules change, a bounded number of them. While a stored rule is unreadable super users alone are served:
it may be one that denies.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from pqbroker.broker.ground.access import AclKind, AclOperation, AclResource, Principal
from pqbroker.broker.services.access.rule_index import RuleIndex, normal_host
from pqbroker.broker.services.access.rules import AclRule, read_rule
from pqbroker.storage.tablets.row_sets import Key, Row
from pqbroker.storage.tablets.scheme_acls import rule_fields

log = logging.getLogger(__name__)

_PROBE = "hardcode"
"""Name that Kafka asks for first when it looks for some resource that is allowed."""

KeptDecision = tuple[Principal, str, AclOperation, AclResource | AclKind]


class RuleAccess:
    """The access rules of the scheme, an `Access`; `follow` keeps it as the scheme is."""

    def __init__(
        self, super_users: Iterable[str], *, allows_unruled: bool, decisions_max: Callable[[], int]
    ) -> None:
        """`allows_unruled`: a resource that no rule is for is everybody's."""
        self.super_users = frozenset(super_users)
        """Super users of the setting."""
        self._stored_super_users: set[str] = set()
        self._allows_unruled = allows_unruled
        self._decisions_max = decisions_max
        self._decisions: dict[KeptDecision, bool] = {}
        self._index = RuleIndex()
        self.unreadable: dict[Key, str] = {}
        """Causes, by key, of rows that are no rules of this version."""
        self.revision = 0

    @property
    def rules(self) -> Mapping[AclRule, None]:
        """Return every rule, in the order of their coming."""
        return self._index.rules

    @property
    def kept_decisions(self) -> int:
        return len(self._decisions)

    def allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        asked: KeptDecision = (principal, host, operation, resource)
        allowed = self._decisions.get(asked)
        if allowed is None:
            allowed = self._keep(asked, self._allows(principal, normal_host(host), operation, resource))
        return allowed

    def allows_any(self, principal: Principal, host: str, operation: AclOperation, kind: AclKind) -> bool:
        asked: KeptDecision = (principal, host, operation, kind)
        allowed = self._decisions.get(asked)
        if allowed is None:
            host = normal_host(host)
            allowed = self._allows(principal, host, operation, AclResource(kind, _PROBE)) or (
                not self.unreadable and self._index.decide_any(str(principal), host, operation, kind)
            )
            self._keep(asked, allowed)
        return allowed

    def follow(self, key: Key, row: Row | None) -> None:
        """Take a rule that was stored, or removed (None)."""
        self._decisions.clear()
        self.revision += 1
        rule = self._read(key)
        if rule is None and row is None:
            self.unreadable.pop(key, None)
        elif rule is None:
            log.error(
                "an access rule is unreadable, so super users alone are served: %s; start the version that wrote it, "
                "or have a super user remove it with pqbroker acl remove --unreadable", self.unreadable[key],
            )  # fmt: skip
        elif row is None:
            self._index.remove(rule)
        else:
            self._index.add(rule)

    def follow_user(self, key: Key, row: Row | None) -> None:
        """Take a user that was stored, or removed (None): one may be a super user."""
        name = f"User:{key[0]!s}"
        is_super = row is not None and row.get("is_super") is True
        if is_super == (name in self._stored_super_users):
            return
        (self._stored_super_users.add if is_super else self._stored_super_users.discard)(name)
        self._decisions.clear()
        self.revision += 1

    def load_users(self, rows: Mapping[Key, Row]) -> None:
        """Become what is stored of users."""
        stored = {f"User:{key[0]!s}" for key in rows}
        for name in self._stored_super_users - stored:
            self.follow_user((name.removeprefix("User:"),), None)
        for key, row in rows.items():
            self.follow_user(key, row)

    def load(self, rows: Mapping[Key, Row]) -> None:
        """Become what is stored; what is the same already costs a look."""
        known: set[Key] = {*self._index.rules, *self.unreadable}
        for key in known - rows.keys():
            self.follow(key, None)
        for key in rows.keys() - known:
            self.follow(key, rows[key])

    def _allows(self, principal: Principal, host: str, operation: AclOperation, resource: AclResource) -> bool:
        name = str(principal)
        if name in self.super_users or name in self._stored_super_users:
            return True
        if self.unreadable:
            return False
        allowed = self._index.decide(name, host, operation, resource)
        return self._allows_unruled if allowed is None else allowed

    def _keep(self, asked: KeptDecision, allowed: bool) -> bool:
        if len(self._decisions) >= self._decisions_max():
            self._decisions.clear()
        self._decisions[asked] = allowed
        return allowed

    def _read(self, key: Key) -> AclRule | None:
        """Return the rule of a row; None, and the cause is noted, where this version does not know it."""
        try:
            return read_rule(rule_fields(key))
        except ValueError as bad:
            self.unreadable[key] = f"{key!r}: {bad}"
            return None

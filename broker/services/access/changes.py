"""Access rules shown, added and removed, a few in each turn of the loop and in each commit.

A change counts from the turn on in which it is durable. The callers see to who may do so.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pqbroker.broker.services.access.callers import AccessNode
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.broker.services.access.rules import AclRule, RuleFilter, new_rule
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.scheme_acls import AclChanges

RULES_PER_COMMIT: Final = 250
"""Rules in one commit at most: a few milliseconds of the loop, and far from the largest commit."""
_RULES_PER_SLICE: Final = 200
"""Rules that are looked at between two looks at the time."""


def rules_of(node: AccessNode, text: str) -> RuleAccess:
    """Return the node's rules. KafkaError SECURITY_DISABLED with this text where it has none."""
    if node.rules is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, text)
    return node.rules


async def find_rules(node: AccessNode, rules: RuleAccess, wanted: RuleFilter) -> list[AclRule]:
    """Return the rules that a filter matches. KafkaError INVALID_REQUEST."""
    wanted.check()
    found: list[AclRule] = []
    every = list(rules.rules)
    for start in range(0, len(every), _RULES_PER_SLICE):
        await node.turns.breathe()
        found += filter(wanted.matches, every[start : start + _RULES_PER_SLICE])
    return found


async def add_rules(node: AccessNode, asked: Sequence[Mapping[str, Any]]) -> list[KafkaError | None]:
    """Add rules, each given by field; return what each was refused with, in their order. A rule that exists already is
    as good as one that is added."""
    outcomes: list[KafkaError | None] = []
    wanted: dict[AclRule, list[int]] = {}
    for number, fields in enumerate(asked):
        await node.turns.breathe()
        try:
            rule = new_rule(fields, node.settings.acl_bytes_max)
        except KafkaError as refusal:
            outcomes.append(refusal.with_traceback(None))
        else:
            outcomes.append(None)
            wanted.setdefault(rule, []).append(number)
    changes, most = AclChanges(node.cell.current.scheme), node.settings.acls_max
    for part in _parts(list(wanted)):
        refused = set(await changes.add(part, most))
        for number in [number for rule in part if rule in refused for number in wanted[rule]]:
            outcomes[number] = KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"there are {most} access rules, the most allowed (pqbroker.acls.max); remove some, or raise it",
            )
    return outcomes


async def remove_rules(node: AccessNode, rules: Sequence[AclRule]) -> set[AclRule]:
    """Remove rules; return those that there were."""
    changes = AclChanges(node.cell.current.scheme)
    removed: set[AclRule] = set()
    for part in _parts(rules):
        found = set(await changes.remove(part))
        removed |= {rule for rule in part if rule in found}
        await node.turns.breathe()
    return removed


async def remove_unreadable(node: AccessNode, rules: RuleAccess) -> list[str]:
    """Remove the rows that are no rules of this version; return the causes why they were unreadable."""
    known = dict(rules.unreadable)
    removed = await AclChanges(node.cell.current.scheme).remove(list(known))
    return [known[key] for key in removed]


def _parts(rules: Sequence[AclRule]) -> Iterator[Sequence[AclRule]]:
    for start in range(0, len(rules), RULES_PER_COMMIT):
        yield rules[start : start + RULES_PER_COMMIT]

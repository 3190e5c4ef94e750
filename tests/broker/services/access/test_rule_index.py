"""Decisions by access rules, beside a model of a few lines and the words of KIP-11, KIP-290 and KIP-679."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pqbroker.broker.ground.access import CLUSTER, AclKind, AclOperation, AclResource, Principal
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.broker.services.access.rule_index import RuleIndex
from pqbroker.broker.services.access.rules import AclPattern, AclPermission, AclRule
from tests.support.depth import examples

Op = AclOperation
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
IMPLIES = {
    Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER},
    Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS},
}
ANN, BOB = "User:ann", "User:bob"

NAMES = st.sampled_from(["*", "a", "ab", "abc", "b", "A", "**"])
RULES = st.builds(
    AclRule, st.sampled_from([AclKind.TOPIC, AclKind.GROUP]), st.sampled_from(AclPattern), NAMES,
    st.sampled_from([ANN, BOB, "User:*", "Group:ann"]), st.sampled_from(["*", "1.1.1.1", "2.2.2.2"]),
    st.sampled_from([Op.ALL, Op.READ, Op.WRITE, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS]),
    st.sampled_from(AclPermission),
)  # fmt: skip
OPERATIONS = st.sampled_from([Op.READ, Op.WRITE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.CREATE])


def topic_rule(name: str, *, pattern: AclPattern = LITERAL, principal: str = ANN, host: str = "*",
               operation: AclOperation = Op.READ, permission: AclPermission = ALLOW) -> AclRule:  # fmt: skip
    return AclRule(AclKind.TOPIC, pattern, name, principal, host, operation, permission)


def index_of(*rules: AclRule) -> RuleIndex:
    index = RuleIndex()
    for rule in rules:
        index.add(rule)
    return index


def decided(index: RuleIndex, operation: AclOperation, name: str = "orders", principal: str = ANN) -> bool | None:
    return index.decide(principal, "1.1.1.1", operation, AclResource(AclKind.TOPIC, name))


def is_for(rule: AclRule, resource: AclResource) -> bool:
    if rule.kind is not resource.kind:
        return False
    if rule.pattern is PREFIXED:
        return resource.name.startswith(rule.name)
    return rule.name in ("*", resource.name)


def model(
    rules: Iterable[AclRule], principal: str, host: str, operation: AclOperation, resource: AclResource
) -> bool | None:
    """Return what StandardAuthorizer decides, rule by rule."""
    found = [rule for rule in rules if is_for(rule, resource)]
    mine = [rule for rule in found if rule.principal in (principal, "User:*") and rule.host in ("*", host)]
    if any(rule.permission is DENY and rule.operation in (Op.ALL, operation) for rule in mine):
        return False
    wide = {Op.ALL, operation, *IMPLIES.get(operation, ())}
    if any(rule.permission is ALLOW and rule.operation in wide for rule in mine):
        return True
    return False if found else None


@settings(max_examples=examples(500))
@given(
    st.lists(RULES, max_size=12), st.lists(st.integers(0, 11), max_size=6), NAMES, OPERATIONS,
    st.sampled_from(["1.1.1.1", "3.3.3.3"]),
)  # fmt: skip
def test_decisions_are_those_of_a_model_that_looks_at_every_rule(
    rules: list[AclRule], removed: list[int], name: str, operation: AclOperation, host: str
) -> None:
    index, left = index_of(*rules), dict.fromkeys(rules)
    for number in removed:
        if number < len(rules):
            index.remove(rules[number])
            left.pop(rules[number], None)
    for kind in (AclKind.TOPIC, AclKind.GROUP):
        resource = AclResource(kind, name)
        expected = model(left, ANN, host, operation, resource)
        assert index.decide(ANN, host, operation, resource) is expected
    for rule in list(left):
        index.remove(rule)
    assert decided(index, Op.READ, name) is None


@settings(max_examples=examples(500))
@given(st.lists(RULES, max_size=12), OPERATIONS, NAMES)
def test_what_is_allowed_on_no_topic_is_allowed_on_none(
    rules: list[AclRule], operation: AclOperation, name: str
) -> None:
    """Implied operations do not count, as in Kafka; the names are those that the patterns have themselves."""
    exact = [rule for rule in rules if rule.operation in (Op.ALL, operation)]
    index = index_of(*exact)
    if not index.decide_any(ANN, "1.1.1.1", operation, AclKind.TOPIC):
        assert model(exact, ANN, "1.1.1.1", operation, AclResource(AclKind.TOPIC, name)) is not True


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([topic_rule("t")], True),
        ([topic_rule("t", operation=Op.ALL)], True),
        ([topic_rule("t", operation=Op.WRITE)], False),
        ([topic_rule("t", principal=BOB)], False),
        ([topic_rule("t", principal="User:*")], True),
        ([topic_rule("t", host="2.2.2.2")], False),
        ([topic_rule("t"), topic_rule("t", permission=DENY)], False),
        ([topic_rule("t"), topic_rule("u", permission=DENY)], True),
        ([topic_rule("t"), topic_rule("*", permission=DENY)], False),
        ([topic_rule("to"), topic_rule("t", pattern=PREFIXED, permission=DENY)], False),
        ([topic_rule("t", pattern=PREFIXED), topic_rule("to", pattern=PREFIXED, permission=DENY)], True),
        ([topic_rule("*"), topic_rule("t", pattern=PREFIXED, permission=DENY)], True),
    ],
)
def test_some_topic_may_be_read_unless_every_allowing_pattern_is_denied(rules: list[AclRule], expected: bool) -> None:
    assert index_of(*rules).decide_any(ANN, "1.1.1.1", Op.READ, AclKind.TOPIC) is expected


def test_a_denial_wins_over_every_permission() -> None:
    index = index_of(topic_rule("orders"), topic_rule("o", pattern=PREFIXED, permission=DENY))
    assert decided(index, Op.READ) is False
    assert decided(index, Op.DESCRIBE) is True, "denying Read leaves what Read implies"


def test_an_ipv6_host_counts_however_it_is_written() -> None:
    access = RuleAccess((), allows_unruled=False, decisions_max=lambda: 1000)
    rule = topic_rule("orders", host="0:0:0:0:0:0:0:1")
    access.follow(rule, {})
    asked = (Op.READ, AclResource(AclKind.TOPIC, "orders"))
    assert access.allows(Principal("User", "ann"), "::1", *asked)
    assert not access.allows(Principal("User", "ann"), "::2", *asked)
    access.follow(topic_rule("orders", host="1.1.1.1"), {})
    assert access.allows(Principal("User", "ann"), "::ffff:1.1.1.1", *asked)


def test_super_users_do_everything_and_others_what_no_rule_is_for_where_that_is_set() -> None:
    ann, bob = Principal("User", "ann"), Principal("User", "bob")
    for allows_unruled in (False, True):
        access = RuleAccess([BOB], allows_unruled=allows_unruled, decisions_max=lambda: 1000)
        access.follow(topic_rule("orders", permission=DENY, principal="User:*", operation=Op.ALL), {})
        assert access.allows(bob, "", Op.READ, AclResource(AclKind.TOPIC, "orders"))
        assert not access.allows(ann, "", Op.READ, AclResource(AclKind.TOPIC, "orders"))
        assert access.allows(ann, "", Op.ALTER, CLUSTER) is allows_unruled
        assert access.allows_any(ann, "", Op.READ, AclKind.TOPIC) is allows_unruled


def test_a_decision_is_kept_until_a_rule_changes_and_so_many_at_most() -> None:
    access = RuleAccess((), allows_unruled=False, decisions_max=lambda: 10)
    ann = Principal("User", "ann")
    for number in range(1000):
        assert not access.allows(ann, "", Op.READ, AclResource(AclKind.TOPIC, f"t{number}"))
        assert access.kept_decisions <= 10
    before = access.revision
    access.follow(topic_rule("t999"), {})
    assert access.revision > before
    assert access.allows(ann, "", Op.READ, AclResource(AclKind.TOPIC, "t999"))
    access.follow(topic_rule("t999"), None)
    assert not access.allows(ann, "", Op.READ, AclResource(AclKind.TOPIC, "t999"))


@pytest.mark.parametrize("key", [(2, 3, "t", ANN, "*", 99, 3), (2, 3, "t", ANN, "*", 3), (2, 3, 5, ANN, "*", 3, 3)])
def test_while_a_rule_is_unreadable_super_users_alone_are_served(key: tuple[int | str | bytes, ...]) -> None:
    access = RuleAccess([BOB], allows_unruled=True, decisions_max=lambda: 1000)
    asked = ("", Op.READ, AclResource(AclKind.TOPIC, "t"))
    assert access.allows(Principal("User", "ann"), *asked)
    access.load({key: {}})
    assert list(access.unreadable) == [key]
    assert not access.allows(Principal("User", "ann"), *asked)
    assert not access.allows_any(Principal("User", "ann"), "", Op.READ, AclKind.TOPIC)
    assert access.allows(Principal("User", "bob"), *asked)
    access.load({})
    assert access.allows(Principal("User", "ann"), *asked)

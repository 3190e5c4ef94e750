"""`pqbroker acl`: access rules of any Kafka broker; of ours also the rights that each request needs."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.confirmation import confirm
from pqbroker.cli.kafka.acls import (
    ACL_OPERATIONS,
    ACL_PERMISSIONS,
    ANY_CODE,
    PATTERN_TYPES,
    RESOURCE_KINDS,
    AclEntry,
    AclFilter,
    create_acls,
    delete_acls,
    describe_acls,
)
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.options import Broker, Http, Json, Yes
from pqbroker.cli.output import say, show_json, show_table
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import WrongInput, near
from pqbroker.cli.web import DEFAULT_HTTP, Web

app = Family("Show, add and remove access rules (ACLs): who may do what with which resource.")

_CLUSTER = "kafka-cluster"
"""Name of the cluster in a rule."""

Topics = Annotated[list[str] | None, option("--topic", metavar="NAME", help="Topic, or * for all; repeatable.")]
Groups = Annotated[list[str] | None, option("--group", metavar="NAME", help="Group, or * for all; repeatable.")]
NamedIds = Annotated[
    list[str] | None, option("--transactional-id", metavar="NAME", help="Transactional id, or *; repeatable.")
]
OfCluster = Annotated[bool, option("--cluster", help="The cluster itself.")]
Operations = Annotated[
    list[str] | None,
    option("--operation", metavar="WORD", help=f"One of {', '.join(ACL_OPERATIONS)}; repeatable."),
]
RulesPattern = Annotated[
    str,
    option(
        "--pattern", metavar="WORD",
        help="Type of pattern: literal, prefixed, any; match: rules whose pattern the name matches.",
    ),
]
RulesPrincipal = Annotated[
    str | None, option("--principal", metavar="PRINCIPAL", help="Principal of the rules, User:NAME.")
]
FromHosts = Annotated[list[str] | None, option("--host", metavar="ADDRESS", help="Client's address; repeatable.")]


@declare(app, "add", "pqbroker acl add --allow User:ann --operation read --topic orders --group billing")
def add(
    allow: Annotated[
        list[str] | None, option("--allow", metavar="PRINCIPAL", help="Principal to allow, User:NAME; repeatable.")
    ] = None,
    deny: Annotated[
        list[str] | None, option("--deny", metavar="PRINCIPAL", help="Principal to deny, User:NAME; repeatable.")
    ] = None,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: NamedIds = None,
    cluster: OfCluster = False,
    prefixed: Annotated[bool, option("--prefixed", help="Each name is the beginning of names.")] = False,
    host: FromHosts = None,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Add access rules: one for each principal, operation, resource and host. Without --host they are for all hosts.
    A denial wins over every permission."""
    resources = _resources(topic, group, transactional_id, cluster=cluster)
    if not resources or not operation or not (allow or deny):
        raise WrongInput("give --allow or --deny, --operation, and a resource: --topic, --group, --cluster, …")
    principals = [(name, word) for word, names in (("allow", allow), ("deny", deny)) for name in names or ()]
    rules = [
        AclEntry(
            kind, name, PATTERN_TYPES["prefixed" if prefixed and kind != RESOURCE_KINDS["cluster"] else "literal"],
            principal, address, _code("--operation", ACL_OPERATIONS, word), ACL_PERMISSIONS[permission],
        )
        for kind, name in resources
        for principal, permission in principals
        for address in host or ["*"]
        for word in operation
    ]  # fmt: skip
    with Cluster(broker) as connected:
        create_acls(connected, rules)
    _show(rules, "added", json=json)


@declare(app, "list", "pqbroker acl list --principal User:ann")
def list_rules(
    topic: Topics = None,
    group: Groups = None,
    transactional_id: NamedIds = None,
    cluster: OfCluster = False,
    pattern: RulesPattern = "any",
    principal: RulesPrincipal = None,
    operation: Operations = None,
    host: FromHosts = None,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """List access rules: all, or those of a resource, a principal, an operation or a host."""
    wanted = _filters(
        _resources(topic, group, transactional_id, cluster=cluster), pattern, principal, operation, host
    )
    with Cluster(broker) as connected:
        found = sorted({rule for one in wanted for rule in describe_acls(connected, one)})
    _show(found, "", json=json)


@declare(app, "remove", "pqbroker acl remove --principal User:ann --topic orders --yes")
def remove(
    topic: Topics = None,
    group: Groups = None,
    transactional_id: NamedIds = None,
    cluster: OfCluster = False,
    pattern: RulesPattern = "any",
    principal: RulesPrincipal = None,
    operation: Operations = None,
    host: FromHosts = None,
    unreadable: Annotated[
        bool, option("--unreadable", help="Remove rules that this version of pqbroker cannot read, over HTTP.")
    ] = False,
    yes: Yes = False,
    broker: Broker = DEFAULT_KAFKA,
    http: Http = DEFAULT_HTTP,
    json: Json = False,
) -> None:
    """Remove the access rules that match all options, after asking."""
    if unreadable:
        confirm("remove unreadable access rules?", yes)
        with Web(http, broker=broker) as web:
            removed = web.delete_part("/v1/acls?unreadable=true", {}, "unreadable")["unreadable"]
        say("\n".join([f"removed {len(removed)} unreadable access rules", *removed]))
        return
    wanted = _filters(
        _resources(topic, group, transactional_id, cluster=cluster), pattern, principal, operation, host
    )
    if wanted == [AclFilter()]:
        raise WrongInput("say which rules to remove: a resource, --principal, --operation or --host")
    with Cluster(broker) as connected:
        found = sorted({rule for one in wanted for rule in describe_acls(connected, one)})
        if not found:
            say("no access rule matches")
            return
        confirm(f"remove {len(found)} access rule{'s' * (len(found) != 1)}?", yes)
        _show(delete_acls(connected, wanted), "removed", json=json)


@declare(app, "needs", "pqbroker acl needs")
def needs(http: Http = DEFAULT_HTTP, json: Json = False) -> None:
    """List the rights that each request needs: of Kafka's protocol, and over HTTP."""
    with Web(http) as web:
        answer = web.get("/v1/acls/needs", "apis")
    if json:
        show_json(answer)
        return
    rows = [(one["request"], one["needs"]) for one in (*answer["apis"], *answer["routes"])]
    show_table(("request", "needs"), rows)


def _resources(
    topics: Sequence[str] | None, groups: Sequence[str] | None, ids: Sequence[str] | None, *, cluster: bool
) -> list[tuple[int, str]]:
    named = {"topic": topics, "group": groups, "transactional-id": ids, "cluster": [_CLUSTER] if cluster else None}
    return [(RESOURCE_KINDS[kind], name) for kind, names in named.items() for name in names or ()]


def _filters(
    resources: Sequence[tuple[int, str]], pattern: str, principal: str | None, operations: Sequence[str] | None,
    hosts: Sequence[str] | None,
) -> list[AclFilter]:  # fmt: skip
    type_ = _code("--pattern", PATTERN_TYPES, pattern)
    codes = [_code("--operation", ACL_OPERATIONS, word) for word in operations or ()] or [ANY_CODE]
    places: Sequence[tuple[int, str | None]] = resources or [(ANY_CODE, None)]
    addresses: Sequence[str | None] = hosts or [None]
    return [
        AclFilter(kind, name, type_, principal, address, code)
        for kind, name in places
        for address in addresses
        for code in codes
    ]


def _code(name: str, words: Mapping[str, int], word: str) -> int:
    given = word.lower().replace("_", "-")
    if given not in words:
        raise WrongInput(f"{name} is {word!r}; {near(given, words) or 'give one of ' + ', '.join(words)}")
    return words[given]


def _show(rules: Sequence[AclEntry], verb: str, *, json: bool) -> None:
    shown = [rule.shown() for rule in rules]
    if json:
        for one in shown:
            show_json(one)
        return
    if verb:
        say(f"{verb} {len(rules)} access rule{'s' * (len(rules) != 1)}")
    elif not rules:
        say("no access rule")
    if shown:
        show_table(tuple(shown[0]), [tuple(one.values()) for one in shown])

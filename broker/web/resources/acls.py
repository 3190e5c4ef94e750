"""Access rules: show them, add some, remove those that a filter matches."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from pqbroker.broker.ground.access import CLUSTER, AclKind, AclOperation, audit_change
from pqbroker.broker.services.access.changes import add_rules, find_rules, remove_rules, remove_unreadable, rules_of
from pqbroker.broker.services.access.rules import (
    ANY_CODE,
    MATCH,
    AclPattern,
    AclPermission,
    AclRule,
    RuleFilter,
    read_rule,
)
from pqbroker.broker.web.routing.problems import bad_request, of_kafka
from pqbroker.broker.web.routing.routes import LIMIT, Call, Parameter, Route
from pqbroker.broker.web.routing.schemas import COUNT, TEXT, array_of, nullable, object_of

_DISABLED = "this broker has no access rules; start it with authorizer.class.name"
_WORDS: Final[Mapping[str, type[IntEnum]]] = {
    "kind": AclKind, "pattern": AclPattern, "operation": AclOperation, "permission": AclPermission,
}  # fmt: skip
_TEXTS: Final = ("name", "principal", "host")


async def list_all(call: Call) -> Any:
    rules, wanted = call.node.rules, _filter(call)
    found = [] if rules is None else await find_rules(call.node, rules, wanted)
    after: int = call.query.get("after", 0)
    page, has_more = call.page(found[after:])
    return {
        "cell": call.cell.name,
        "enabled": rules is not None,
        "acls": [document(rule) for rule in page],
        "unreadable": [] if rules is None else list(rules.unreadable.values()),
        "next": str(after + len(page)) if has_more else None,
    }


async def add(call: Call) -> Any:
    rules_of(call.node, _DISABLED)
    asked = [_read(item, f"acls[{number}]") for number, item in enumerate(call.body["acls"])]
    refusals = await add_rules(call.node, asked)
    for fields, refusal in zip(asked, refusals, strict=True):
        if refusal is None:
            audit_change(call, AclOperation.ALTER.name, str(CLUSTER), f"access rule added: {read_rule(fields)}")
    return {
        "cell": call.cell.name,
        "results": [
            {"error": None if refusal is None else of_kafka(refusal.code, refusal.message).document()["error"]}
            for refusal in refusals
        ],
    }


async def remove(call: Call) -> Any:
    rules = rules_of(call.node, _DISABLED)
    if call.query.get("unreadable", False):
        return {"cell": call.cell.name, "acls": [], "unreadable": await remove_unreadable(call.node, rules)}
    wanted = _filter(call)
    if wanted == RuleFilter():
        raise bad_request("no filter is given, and every rule would go; name one, such as kind=topic")
    removed = await remove_rules(call.node, await find_rules(call.node, rules, wanted))
    for rule in removed:
        audit_change(call, AclOperation.ALTER.name, str(CLUSTER), f"access rule removed: {rule}")
    return {"cell": call.cell.name, "acls": [document(rule) for rule in sorted(removed)], "unreadable": []}


def document(rule: AclRule) -> dict[str, str]:
    """Return a rule as JSON has it."""
    return {
        field: value.name.lower() if isinstance(value, IntEnum) else value for field, value in rule._asdict().items()
    }


def _read(item: Mapping[str, Any], place: str) -> dict[str, Any]:
    return {
        field: _code(field, value, place) if field in _WORDS else value
        for field, value in {"host": "*", "pattern": "literal", "permission": "allow", **item}.items()
    }


def _filter(call: Call) -> RuleFilter:
    given: dict[str, Any] = {
        field: _code(field, call.query[field], field) if field in _WORDS else call.query[field]
        for field in (*_WORDS, *_TEXTS)
        if field in call.query
    }
    return RuleFilter()._replace(**given)


def _code(field: str, word: str, place: str) -> int:
    words = {one.name.lower(): int(one) for one in _WORDS[field]}
    if place == "pattern":
        words |= {"match": MATCH, "any": ANY_CODE}
    if word.lower() not in words:
        raise bad_request(f"{place}: {field} is {word[:100]!r}; give one of {', '.join(words)}")
    return words[word.lower()]


_ACL = {"kind": TEXT, "name": TEXT, "principal": TEXT, "operation": TEXT}
_FURTHER = {"pattern": TEXT, "host": TEXT, "permission": TEXT}
_SHOWN = object_of({**_ACL, **_FURTHER})
_EXAMPLE = {
    "kind": "topic", "pattern": "prefixed", "name": "orders-", "principal": "User:ann", "host": "*",
    "operation": "read", "permission": "allow",
}  # fmt: skip
_ASKED = {key: value for key, value in _EXAMPLE.items() if key != "host"}
_FILTERS = (
    Parameter("kind", TEXT, "Rules for topics (`topic`), groups (`group`), the `cluster`, a `transactional_id`."),
    Parameter("name", TEXT, "Rules of this resource name."),
    Parameter(
        "pattern", TEXT,
        "Rules of this type of pattern, `literal` or `prefixed`; `match`: those whose pattern the name matches.",
    ),
    Parameter("principal", TEXT, "Rules of this principal, such as User:ann."),
    Parameter("host", TEXT, "Rules of this host; `*` is a host of its own."),
    Parameter("operation", TEXT, "Rules for this operation, such as `read`."),
    Parameter("permission", TEXT, "Rules that `allow`, or those that `deny`."),
)

ROUTES = (
    Route(
        "GET", "/v1/acls", "List access rules", list_all,
        object_of({
            "cell": TEXT, "enabled": {"type": "boolean"}, "acls": array_of(_SHOWN), "unreadable": array_of(TEXT),
            "next": nullable(TEXT),
        }),
        (*_FILTERS, Parameter("after", COUNT, "Number of entries to leave out: `next` of the previous answer."), LIMIT),
        cluster=AclOperation.DESCRIBE,
        example={"cell": "0", "enabled": True, "acls": [_EXAMPLE], "unreadable": [], "next": None},
    ),
    Route(
        "POST", "/v1/acls", "Add access rules; each is answered in its place, and one that exists is no error", add,
        object_of({
            "cell": TEXT,
            "results": array_of(object_of({"error": nullable(object_of({"code": TEXT, "message": TEXT, "cure": TEXT},
                                                                       {"number": COUNT}))})),
        }),
        body=object_of({"acls": array_of(object_of(_ACL, _FURTHER))}), cluster=AclOperation.ALTER,
        body_example={"acls": [_ASKED]}, example={"cell": "0", "results": [{"error": None}]},
    ),
    Route(
        "DELETE", "/v1/acls", "Remove the access rules that a filter matches; at least one part of it is given", remove,
        object_of({"cell": TEXT, "acls": array_of(_SHOWN), "unreadable": array_of(TEXT)}),
        (*_FILTERS, Parameter("unreadable", {"type": "boolean"}, "Remove rows that are no rules of this version.")),
        cluster=AclOperation.ALTER,
        example={"cell": "0", "acls": [_EXAMPLE], "unreadable": []},
    ),
)  # fmt: skip

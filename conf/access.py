"""Settings of access rules: whether there are any, who is above them, and their limits. `broker.BrokerSettings` lists
them."""

from typing import Final

from pqbroker.conf.declare import Kind, setting

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def principals(text: str) -> frozenset[str]:
    """Return the principals of a list with semicolons. ValueError for one without a type."""
    found = {item.strip() for item in text.split(";")} - {""}
    for one in sorted(found):
        if ":" not in one:
            raise ValueError(f"{one!r} is no principal; write it with its type, such as User:{one}")
    return frozenset(found)


AUTHORIZER_CLASS_NAME = setting(
    "authorizer.class.name", Kind.STRING, "",
    "Set to Kafka's StandardAuthorizer: access rules (ACLs) decide what each principal may do, and a principal that no "
    "rule allows an operation is refused. Empty: everybody may do everything, and requests for rules are "
    "SECURITY_DISABLED.", choices=("", STANDARD_AUTHORIZER),
)  # fmt: skip
ACCESS_CLASS = setting(
    "pqbroker.access.class", Kind.STRING, "",
    "MODULE:CLASS of an installed package that decides what each principal may do, in place of access rules: an "
    "`Access` as `broker/ground/access.py` declares it, made without arguments. Empty: none.",
    pattern=r"|[A-Za-z_][\w.]*:[A-Za-z_]\w*",
)  # fmt: skip
SUPER_USERS = setting(
    "super.users", Kind.STRING, "",
    "Principals that may do everything, whatever the rules say: User:NAME, several with semicolons. Without access "
    "rules it has no effect.", read=principals,
)  # fmt: skip
ALLOW_EVERYONE_IF_NO_ACL_FOUND = setting(
    "allow.everyone.if.no.acl.found", Kind.BOOLEAN, False,
    "Let everybody do everything with a topic, group or other resource that no access rule is for; if false, only "
    "super users may.",
)  # fmt: skip
ACLS_MAX = setting(
    "pqbroker.acls.max", Kind.INT, 20_000, "Access rules at most; one more is refused with POLICY_VIOLATION.", low=1,
    high=100_000,
)  # fmt: skip
ACL_BYTES_MAX = setting(
    "pqbroker.acl.bytes.max", Kind.INT, 2048,
    "Bytes of the resource name, principal and host of an access rule together at most; above: INVALID_REQUEST.",
    low=64, high=32_768,
)  # fmt: skip
ACCESS_DECISIONS_MAX = setting(
    "pqbroker.access.decisions.max", Kind.INT, 100_000,
    "Decisions by access rules that are kept in memory at most, about 300 bytes each. They are kept until a rule "
    "changes; when one more comes, all are forgotten.", low=1000,
)  # fmt: skip

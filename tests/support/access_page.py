"""Writes docs/access-rules.md from the tables of rights: `python -m tests.support.access_page`."""

from collections.abc import Iterator
from pathlib import Path

from pqbroker.broker.ground.access import AclOperation
from pqbroker.broker.ground.needs import on_cluster, written
from pqbroker.broker.kafka.apis.api_needs import API_NEEDS
from pqbroker.broker.web.route_needs import needs_of
from pqbroker.broker.web.served import ROUTES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "access-rules.md"

_HEAD = """\
# Access rules

Access rules (ACLs) say which principal may do what with a topic, a group, a transactional id or the cluster. They are
Apache Kafka's: the same settings, the same commands, the same answers. How users log in is described in
[security](security.md). This page also has [quotas](#quotas) and the [audit log](#audit-log).

## Turn them on

```properties
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
```

Without the first line every client may do everything, and requests for rules are answered with SECURITY_DISABLED. Super
users (several with semicolons between them) may do everything whatever the rules say. A resource that no rule is for
can be used only by super users, or with `allow.everyone.if.no.acl.found=true` by everybody.

A client that does not log in is `User:ANONYMOUS`.

## Make rules

```sh
pqbroker acl add --allow User:ann --operation read --topic orders --group billing
pqbroker acl add --deny 'User:*' --operation all --topic secret- --prefixed --host 10.0.0.7
pqbroker acl list --topic orders --pattern match
pqbroker acl remove --principal User:ann --yes
```

Kafka's `kafka-acls` and `GET`, `POST` and `DELETE /v1/acls` over HTTP do the same. A change is in effect when it is
answered, also for requests that wait: what a parked Fetch or a followed topic has not sent yet is checked again.

- A rule is for one name (literal), for every name with a prefix (prefixed), or for all (`*`).
- A rule is for one principal, or for `User:*`; from one host, or from all (`*`).
- A rule that denies overrides all rules that allow.
- Read, Write, Delete and Alter allow Describe too, and AlterConfigs allows DescribeConfigs. A rule that denies an
  operation denies no other.
- A topic that the caller may not see is refused by name with TOPIC_AUTHORIZATION_FAILED whether it exists or not, by
  id with UNKNOWN_TOPIC_ID, and is left out of lists.
- Limits: `pqbroker.acls.max` rules, `pqbroker.acl.bytes.max` bytes of texts in a rule.

Rules are stored in the system cell and are read before a listener opens. If a stored rule is unreadable, it may be one
that denies: then only super users are served until one of them removes it (`pqbroker acl remove --unreadable`). The log
names it.

`python -m tests.kafka_comparison.access` gives a caller every single right, and every right but one, and compares the
answers with those of Kafka 4.3.1.

## Replace the rules by a class

`pqbroker.access.class=MODULE:CLASS` names a class of an installed package that decides in place of rules. The broker
calls it without arguments; it has the methods of `Access` in `broker/ground/access.py`. They are called for each
request, on the event loop, and must not wait. Requests for rules are then answered with SECURITY_DISABLED.
"""


_TAIL = """
## Quotas

Quotas are Kafka's: `producer_byte_rate`, `consumer_byte_rate`, `request_percentage` (100 is the whole event loop) and
`controller_mutation_rate` of users, client ids and both; `connection_creation_rate` of addresses. Of several quotas
for a client the most specific one counts, in Kafka's order, for each of these keys separately.

```sh
pqbroker quota set --for-user ann --produce 1048576
pqbroker quota set --for-client-id "<default>" --requests 50
kafka-configs --bootstrap-server HOST:9092 --alter --entity-type users --entity-default \\
  --add-config consumer_byte_rate=2097152
pqbroker quota list
```

The broker asks a client above its quota to pause (`throttle_time_ms`), and does not read its connection meanwhile.
A Fetch gets no records until then. Above `controller_mutation_rate` topics are refused with THROTTLING_QUOTA_EXCEEDED,
above `connection_creation_rate` new connections are closed.

Kafka counts over eleven windows of a second, so a client that was idle can use ten seconds' worth at once and must then
pause. Here a client saves up only a quarter of a window (`quota.window.size.seconds`), so that a producer keeps to its
rate over any ten seconds. Requests over HTTP have no quotas.

## Audit log

`pqbroker.audit.file` names a file that gets JSON lines:

| line for | operation, resource, detail |
|---|---|
| each refusal, except what is left out of lists | those of the request |
| each allowed Create, Delete, Alter, AlterConfigs and ClusterAction | those of the request |
| with `pqbroker.audit.everything=true`: all that is allowed | those of the request |
| each login, successful or refused | LOGIN, the listener, the mechanism and why it was refused |
| each failed TLS handshake | HANDSHAKE, the listener, the cause |

Over HTTP each user of a connection has one line for the login.

```json
{"time": "2026-01-31T12:00:00.000+00:00", "principal": "User:ann", "host": "10.0.0.7", "operation": "READ",
 "resource": "topic orders", "allowed": false}
```

- A file of `pqbroker.audit.file.bytes.max` bytes is renamed to NAME.1; `pqbroker.audit.files.max` files are kept.
- Lines above `pqbroker.audit.lines.per.second`, or above a quarter of that for one principal at one address, are only
  counted: `{"time": …, "suppressed": 98}`.
- While the disk is full, lines are lost and the broker continues. Later `{"missing": 12}` says how many.
- Metric: `pqbroker_audit_lines_total`, by `outcome`: `written`, `suppressed`, `lost`.
"""


def access_page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield _TAIL
    yield "## Rights that the APIs of Kafka need\n"
    yield "| API | rights |\n|---|---|"
    for name in sorted(API_NEEDS):
        yield f"| {name} | {written(API_NEEDS[name])} |"
    yield "\n## Rights that paths over HTTP need\n"
    yield "`pqbroker acl needs` prints both tables. A sorted table has the rights of a topic of its name.\n"
    yield "| path | rights |\n|---|---|"
    yield "| `GET /health`, `GET /ready` | nothing |"
    yield f"| `GET /metrics` | {on_cluster(AclOperation.DESCRIBE)} |"
    for route in ROUTES:
        yield f"| `{route.method} {route.path}` | {written(needs_of(route))} |"


if __name__ == "__main__":
    PAGE.write_text(access_page(), encoding="utf-8")

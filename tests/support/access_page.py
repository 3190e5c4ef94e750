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

The tables of this page are written from the code (`python -m tests.support.access_page`); a test compares them.

Access rules (ACLs) say which principal may do what with which topic, group, transactional id or with the cluster. They
are Apache Kafka's: the same settings, the same commands, the same answers. `python -m tests.kafka_comparison.access`
gives a caller every single right, and every right but one, and compares our answers with those of Kafka 4.3.1.

## Turn them on

```properties
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
```

Without the first line everybody may do everything, and requests for rules are answered SECURITY_DISABLED. Super users,
several with semicolons, may do everything whatever the rules say. `allow.everyone.if.no.acl.found=true` lets everybody
use what no rule is for; the default is that nobody but super users may.

A client that does not log in is `User:ANONYMOUS`.

## Make rules

```sh
pqbroker acl add --allow User:ann --operation read --topic orders --group billing
pqbroker acl add --deny User:* --operation all --topic secret- --prefixed --host 10.0.0.7
pqbroker acl list --topic orders --pattern match
pqbroker acl remove --principal User:ann --yes
```

`kafka-acls` does the same with `--bootstrap-server`, and so does HTTP: `GET`, `POST` and `DELETE /v1/acls`. A change
counts from its answer on, for requests under way too: what a parked Fetch or a followed topic has not sent yet is
checked again.

- A rule is for one name (literal), for every name that begins so (prefixed), or for all (`*`).
- A rule is for one principal, or for `User:*`; from one host, or from all (`*`).
- A rule that denies wins over every rule that allows.
- Read, Write, Delete and Alter allow Describe; AlterConfigs allows DescribeConfigs. Who denies one denies no other.
- A topic that may not be seen is refused by name with TOPIC_AUTHORIZATION_FAILED whether it exists or not, by id with
  UNKNOWN_TOPIC_ID, and is left out of lists.
- Limits: `pqbroker.acls.max` rules, `pqbroker.acl.bytes.max` bytes of texts in one.

Rules are stored with the cluster's names, in the system cell, and are read before a listener opens. An earlier version
of pqbroker refuses a directory that had a rule. Where a stored rule is unreadable, super users alone are served until
one of them removes it (`pqbroker acl remove --unreadable`): it may be one that denies. The log names it.

## Decide otherwise

`pqbroker.access.class=MODULE:CLASS` names a class of an installed package that decides in place of rules. It is made
without arguments and has the methods of `Access` in `broker/ground/access.py`. It is asked for each request, on the
event loop: it must answer at once. Requests for rules are SECURITY_DISABLED then.
"""


_TAIL = """
## Quotas

Quotas are Kafka's: `producer_byte_rate`, `consumer_byte_rate`, `request_percentage` (100 is the event loop, which all
clients share) and `controller_mutation_rate` of users, client ids and both; `connection_creation_rate` of addresses.
Of all that a client belongs to the most specific one counts, in Kafka's order, for each key by itself.

```sh
pqbroker quota set --for-user ann --produce 1048576
pqbroker quota set --for-client-id "<default>" --requests 50
kafka-configs --bootstrap-server HOST:9092 --alter --entity-type users --entity-default \\
  --add-config consumer_byte_rate=2097152
pqbroker quota list
```

The broker asks a client above its quota to pause, with `throttle_time_ms`, and its connection is not read meanwhile.
A Fetch gets no records until then. Above `controller_mutation_rate` topics are refused with THROTTLING_QUOTA_EXCEEDED.
A connection that comes too early is closed.

Kafka counts over eleven windows of a second: a client that rested uses ten seconds' worth at once, and stands still
then. Here use is spread: a client saves up a quarter of a window (`quota.window.size.seconds`), so that a producer
keeps to its rate over any ten seconds. Requests over HTTP have no quotas.

## Audit log

`pqbroker.audit.file` names a file that gets a JSON line for each refusal, and for each Create, Delete, Alter,
AlterConfigs and ClusterAction that was allowed; with `pqbroker.audit.everything=true` for all that is allowed. What a
list leaves out is not a refusal. Each login and each refused one is a line too, with LOGIN as operation, the listener
as resource, and as detail the mechanism and why it was refused. Over HTTP a connection has one line for each user.
Each handshake of TLS that failed is a line, with HANDSHAKE as operation, the listener as resource, and why as detail.

```json
{"time": "2026-01-31T12:00:00.000+00:00", "principal": "User:ann", "host": "10.0.0.7", "operation": "READ",
 "resource": "topic orders", "allowed": false}
```

- A file of `pqbroker.audit.file.bytes.max` bytes becomes NAME.1, and `pqbroker.audit.files.max` files are kept.
- Lines over `pqbroker.audit.lines.per.second`, of which one principal at one address has a quarter, are counted:
  `{"time": …, "suppressed": 98}`.
- Where the disk is full, lines are lost and the broker serves. Once there is room, `{"missing": 12}` says how many.
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

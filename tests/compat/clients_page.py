"""Writes docs/clients.md from what the tests of the matrix came to: `python -m tests.compat.clients_page` runs them."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.compat.clients import CLIENTS, DRIVEN, MODERN

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
MATRIX = Path(__file__).with_name("test_matrix.py")
BEHAVIOURS = {
    "produce": "produce",
    "consume": "consume",
    "group_join": "group join",
    "leave_and_rebalance": "leave and rebalance",
    "commit_and_resume": "commit and resume",
    "static_membership": "static membership",
    "admin": "admin",
}
"""Tests of the matrix, without their `test_`, in the order of the columns."""
OF_MEMBERS = ("group_join", "leave_and_rebalance", "commit_and_resume", "static_membership")
PASSED = "passed"

_HEAD = """\
# Clients

Which Kafka clients were tested with this broker, and what they did. *yes*: the test passes; *no*: it fails; a dash:
the client does not have it, or another row shows it. `tests/compat/test_matrix.py` has a test for each cell, and
`python -m tests.compat.clients_page` runs them and writes this page.

"""
_TAIL = """
- **produce**: records with keys are written, and read by another client. **consume**: the reverse, and reading from
  an offset.
- **group join**: a single member gets every partition and a record of each.
- **leave and rebalance**: two members have half of the partitions each; one leaves, and the other has all.
- **commit and resume**: a second member continues exactly where the first one committed.
- **static membership**: a member that returns with its instance id gets its partitions back, without a rebalance.
- **admin**: topics are created, given partitions, listed, altered, trimmed and deleted; groups and their offsets are
  listed, described and deleted.
- **`group.protocol=consumer`**: the same client in a consumer group of KIP-848, where the broker assigns partitions.

The Python clients have the versions of `pyproject.toml` or later; confluent-kafka contains librdkafka.

More tests of the repository use clients and tools:

| test | what it does |
|---|---|
| `tests/compat/test_tools.py` | compares what Kafka's tools (4.3.1) print here and against Apache Kafka |
| `tests/compat/test_console_calls.py` | makes the calls of the consoles AKHQ and Kafbat |
| `tests/compat/test_cleaning.py`, `test_franz_go.py` | read topics while they are cleaned, franz-go 1.22.3 too |
| `tests/compat/test_streams.py` | restores a Kafka Streams application from a changelog that was cleaned |
| `python -m tests.compat.foreign_groups` | runs librdkafka's own tests of groups of KIP-848 |
| `python -m tests.compat.foreign_suites` | runs tests of groups and transactions of librdkafka and franz-go |

[Compared with Apache Kafka](kafka-comparison.md) lists each answer that differs, with its reason.

These clients were tried by hand in November 2026, and no test repeats it: franz-go 1.22.2, sarama 1.61.1, kafka-go
0.4.51, kafkajs 2.2.4, @platformatic/kafka 1.35.0, rskafka 0.6.0 and faust-streaming 0.15.3. All that they have of the
table above worked, also while the broker was killed and restarted.
Java's kafka-clients 2.1.1, 2.3.1, 2.5.1, 2.8.2 and 3.3.2 created, altered and grew topics, and copied one to another in
transactions, each record once; kafka-python-ng 2.2.3 wrote, read and committed.
Clients that write record formats from before
Kafka 0.11 (kafka-node, pykafka, the crate `kafka`, or another that is configured so) are disconnected, as by Apache
Kafka 4.

Programs were tried the same way, unchanged. *Once*: under read_committed each input was in the output exactly once;
*killed*: `kill -9` of the broker while the program ran.

- **Apache Flink 2.0.1**, flink-connector-kafka 4.0.1-2.0: source to exactly-once sink by both ways of naming
  transactions; a job that failed, restarted, and was killed and resumed from its checkpoint; killed 6 times, also
  with `serve --nodes 2`: once.
- **MirrorMaker 2** of Kafka 4.3.1, from Apache Kafka and back, exactly once off and on: records, headers, configs,
  access rules and offsets of groups; killed twice each, also with `--nodes 2` and MirrorMaker itself: no record lost
  or doubled.
- **Spring Boot 3.5.7**, Spring Kafka 3.3.10: listeners with retry topics, in transactions and in batches, request and
  reply; killed 3 times, also with `--nodes 2` and `group.protocol=consumer`: once.
- **Apicurio Registry 3.0.9** with its schemas in topics (`kafkasql`), which this broker then read through
  `pqbroker.registries`; both killed: all schemas.
- **Hazelcast Jet 5.5.0**, exactly-once sink, killed 3 times; **Apache Pekko Connectors Kafka 1.1.0**, transactional
  flow and committable source, killed twice; **SmallRye Reactive Messaging 4.25.0** (Quarkus has it), transactions
  over batches and dead letters, killed once: once.
- **quixstreams 3.28.1**, exactly once, with state restored from its changelog; killed twice, and the program too:
  once, counts in order. **faust-streaming**, exactly once with a table; **kafkajs** in transactions, every seventh of
  them aborted: once.
- **Apache Camel 4.14.1**, manual commits, batches, a transactional producer; **bytewax 0.21.1**, **pathway 0.33.0**
  and **goka 1.1.14**; **topicctl 1.20.0**, `get` and `apply`: all of it works.
- **Apache Beam 2.68.0** on its direct runner: KafkaIO reads and writes. Its exactly-once sink ends in a time-out,
  here and with Apache Kafka alike.

**A known defect of librdkafka 2.16** (confluent-kafka): after a moment without any broker it asks its bootstrap
addresses again, and may then wait for ever in `send_offsets_to_transaction`, without sending a request. Give a
transactional producer that must survive restarts of a single broker `metadata.recovery.strategy=none`.
"""


class Outcomes:
    """A pytest plugin that notes what came of each cell of the matrix: (behaviour, client) to pytest's word for it."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each phase of each test."""
        file, _, test = report.nodeid.partition("::test_")
        behaviour, bracket, client = test.rstrip("]").partition("[")
        if file.endswith(MATRIX.name) and bracket and (report.when == "call" or report.failed):
            self.cells[behaviour, client] = report.outcome


def clients_page(cells: Mapping[tuple[str, str], str]) -> str:
    """The whole page."""
    rows = [["client", *BEHAVIOURS.values()], ["---"] * (len(BEHAVIOURS) + 1)]
    every = (*CLIENTS, *MODERN)
    rows += [[client, *(_cell(cells, behaviour, client) for behaviour in BEHAVIOURS)] for client in every]
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows) + _TAIL


def declared() -> set[tuple[str, str]]:
    """The cells that must have been run: kcat administers nothing, and group protocols concern members alone."""
    clients = {"admin": DRIVEN, **dict.fromkeys(OF_MEMBERS, (*CLIENTS, *MODERN))}
    return {(behaviour, client) for behaviour in BEHAVIOURS for client in clients.get(behaviour, CLIENTS)}


def _cell(cells: Mapping[tuple[str, str], str], behaviour: str, client: str) -> str:
    outcome = cells.get((behaviour, client))
    return "–" if outcome is None else "yes" if outcome == PASSED else "no"


def main(arguments: Sequence[str]) -> int:
    """Run the matrix and write the page."""
    outcomes = Outcomes()
    status = pytest.main([str(MATRIX), "-k", "not page", *arguments], plugins=[outcomes])
    assert outcomes.cells.keys() == declared(), "the matrix was not run whole"
    PAGE.write_text(clients_page(outcomes.cells), encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

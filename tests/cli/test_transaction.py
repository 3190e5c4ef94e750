"""`pqbroker transaction`, and reads in a transaction, at a broker of ours."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from pqbroker.client import Client, Column, Transaction
from pqbroker.testing import Broker, memory_broker
from tests.cli.shell import Said, Shell
from tests.support.cli_page import KEYS

COLUMNS = (Column("id", "int64", sort_order="ascending"), Column("n", "int64"))


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with memory_broker() as one:
        with Client(one.http) as client:
            client.table("t").create(COLUMNS)
            client.table("t").insert([{"id": 1, "n": 1}])
        yield one


@pytest.fixture
def begun(running: Broker) -> Iterator[Transaction]:
    """An open transaction."""
    with Client(running.http) as client, client.transaction() as one:
        yield one


class _Shell(Shell):
    """Commands at a broker's HTTP address."""

    def __init__(self, running: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(running.kafka, capsys)
        self._http = running.http

    def __call__(self, *arguments: str) -> Said:
        return self.raw(*arguments, "--http", self._http)


@pytest.fixture
def say(running: Broker, capsys: pytest.CaptureFixture[str]) -> _Shell:
    return _Shell(running, capsys)


def test_transactions_are_listed_described_and_aborted(say: _Shell, begun: Transaction) -> None:
    described = say("transaction", "describe", begun.name, "--json").object
    assert ", ".join(described) == KEYS["transaction list"].partition(";")[0]
    assert described in say("transaction", "list", "--state", "open", "--json").objects
    lines = say("transaction", "list").output.splitlines()
    (line,) = [line.split() for line in lines if begun.name in line]
    assert line[1:3] == ["open", "User:ANONYMOUS"]
    assert say("transaction", "abort", begun.name).status == 2
    assert say("transaction", "abort", begun.name, "--yes").output == f"aborted transaction {begun.name}\n"
    assert "its client aborted it" in say("transaction", "describe", begun.name).output
    assert begun.name not in say("transaction", "list", "--state", "open").output
    assert say("transaction", "list", "--state", "committing").output == "no transaction is committing\n"
    begun.abort()


def test_an_operator_aborts_by_force(say: _Shell, begun: Transaction) -> None:
    said = say("transaction", "abort", begun.name, "--force", "--yes", "--json")
    assert said.object == {"transaction": begun.name, "aborted": True}
    assert "an operator aborted it" in say("transaction", "describe", begun.name).output
    begun.abort()


def test_lookups_and_queries_read_in_a_transaction(say: _Shell, running: Broker, begun: Transaction) -> None:
    (was,) = begun.lookup("t", [{"id": 1}])
    assert was is not None
    with Client(running.http) as client:
        client.table("t").insert([{"id": 1, "n": was["n"] + 1}])
    at = ("--transaction", begun.name, "--json")
    assert say("table", "lookup", "t", "id=1", *at).object == was
    assert say("sql", "SELECT n FROM t", *at).object == {"n": was["n"]}


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("transaction", "describe", "x"), 1, "'x' is no name of a transaction"),
        (("transaction", "describe", "0" * 32), 1, "`pqbroker transaction list` lists them"),
        (("transaction", "abort", "0" * 32, "--yes"), 1, "is not open"),
        (("transaction", "list", "--kafka", "--state", "x"), 1, "CompleteAbort. `--help` after the command shows"),
        (("transaction", "abort", "x", "--kafka", "--yes"), 1, "`pqbroker transaction list --kafka` lists"),
        (("transaction", "list", "--state", "closed"), 1, "give open, committing, committed, aborted"),
        (("table", "lookup", "t", "id=1", "--transaction", "x"), 1, "'x' is no name of a transaction"),
        (("table", "lookup", "t", "id=1", "--transaction", "x", "--at", "5"), 2, "give one of --at and --transaction"),
        (("sql", "SELECT n FROM t", "--transaction", "x", "--at", "5"), 2, "give one of --at and --transaction"),
    ],
)
def test_what_is_wrong_is_refused_in_words(say: _Shell, arguments: tuple[str, ...], status: int, told: str) -> None:
    said = say(*arguments)
    assert (said.status, told in said.errors) == (status, True), said.errors


def test_transactions_of_kafka_producers_are_listed_described_and_aborted(running: Broker, say: _Shell) -> None:
    producer = Producer({"bootstrap.servers": running.kafka, "transactional.id": "billing/0"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("kafka-topic", b"v")
    assert producer.flush(10) == 0
    assert [one["name"] for one in say("transaction", "list", "--kafka", "--json").objects] == ["billing/0"]
    (_, _, line) = say("transaction", "list", "--kafka", "--state", "Ongoing").output.splitlines()
    assert line.split()[:2] == ["billing/0", "Ongoing"]
    described = say("transaction", "describe", "billing/0", "--kafka", "--json").object
    assert described["topics"] == [{"topic": "kafka-topic", "partitions": [0]}]
    (listed,) = say("transaction", "list", "--kafka", "--json").objects
    assert ", ".join(listed) == KEYS["transaction list"].partition("with --kafka ")[2]
    aborted = say("transaction", "abort", "billing/0", "--kafka", "--yes")
    assert aborted.output == "aborted transaction billing/0\n"
    assert say("transaction", "list", "--kafka", "--state", "Ongoing").output == "no transactional id is Ongoing\n"
    assert "describe" not in say("transaction", "describe", "nope", "--kafka").output
    assert say("transaction", "list", "--kafka", "--unfinished").status == 2
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)

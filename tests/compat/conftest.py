"""One broker for the whole suite, one driver per client library, and topics of fresh names."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from pqbroker.fixture.http_calls import HttpCalls
from tests.compat.churn import COMPACTED
from tests.compat.clients import DRIVEN, Clients
from tests.compat.clients_page import Outcomes
from tests.support.drivers.driver import Driver
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.serving import Served, served

_topic_numbers = itertools.count(1)
_OUTCOMES = "outcomes of the matrix"
_QUICK = {
    "group.consumer.heartbeat.interval.ms": "300", "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
}  # fmt: skip
"""Settings by which members of groups of KIP-848 hear soon of changes."""


def pytest_configure(config: pytest.Config) -> None:
    """Note what comes of the matrix."""
    config.pluginmanager.register(Outcomes(), _OUTCOMES)


@pytest.fixture
def outcomes(pytestconfig: pytest.Config) -> Outcomes:
    """What came of the cells of the matrix so far."""
    plugin = pytestconfig.pluginmanager.get_plugin(_OUTCOMES)
    assert isinstance(plugin, Outcomes)
    return plugin


@pytest.fixture(scope="package")
def suite_broker() -> Iterator[Served]:
    """The broker."""
    with served(settings=_QUICK) as broker:
        yield broker


@pytest.fixture(scope="package")
def kafka(suite_broker: Served) -> str:
    """HOST:PORT of the broker."""
    return suite_broker.kafka


@pytest.fixture(scope="package")
def clients(kafka: str) -> Iterator[Clients]:
    """Every client, the Java ones started once."""
    with Clients(kafka) as clients:
        yield clients


@pytest.fixture(params=DRIVEN)
def client(request: pytest.FixtureRequest, clients: Clients) -> Iterator[Driver]:
    """Each client library in turn."""
    with clients.driver(request.param) as driver:
        yield driver


@pytest.fixture
def others(clients: Clients) -> Iterator[list[Driver]]:
    """All client libraries, to read what one of them wrote."""
    drivers = [clients.driver(name) for name in DRIVEN]
    yield drivers
    for driver in drivers:
        driver.__exit__(None, None, None)


@pytest.fixture
def fresh_name() -> Callable[[], str]:
    """Names that no topic has yet."""
    return lambda: f"compat-{next(_topic_numbers)}"


@pytest.fixture
def topic(kafka: str, fresh_name: Callable[[], str]) -> str:
    """A new topic of one partition."""
    name = fresh_name()
    with LibrdkafkaDriver(kafka) as driver:
        driver.create_topic(name)
    return name


@pytest.fixture
def calls(suite_broker: Served) -> HttpCalls:
    """Calls of the broker over HTTP; only ours has that."""
    http = suite_broker.http
    assert http is not None
    return HttpCalls(lambda: http)


@pytest.fixture
def compacted(kafka: str, fresh_name: Callable[[], str]) -> str:
    """A compacted topic that is cleaned on command alone, with bodies of a kilobyte."""
    name = fresh_name()
    with LibrdkafkaDriver(kafka) as driver:
        driver.create_topic(name, config=COMPACTED)
    return name

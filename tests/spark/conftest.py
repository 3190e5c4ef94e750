"""One Spark and one broker for the whole suite. A missing jar or Java fails: there is nothing to skip to."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from pqbroker.pipeline.requirements import find_jars
from pqbroker.pipeline.session import start_session
from tests.spark import preloaded
from tests.spark.topics import Topics
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.serving import Served, served

TIMEOUT_S = 900
"""Of a test: Spark and its Python workers start in it, and other programs may have the machine."""
_topic_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Time for a JVM. Its sockets are closed when they are collected; Python's warning of that is not ours to mend."""
    for item in items:
        if item.nodeid.startswith("tests/spark/"):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark of two cores, with settings that keep small jobs quick."""
    assert find_jars(), "the Kafka source's jars are missing: ./test fetches them into .cache/spark-jars"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_PYTHON", str(preloaded.executable(tmp_path_factory.mktemp("bin"))))
        session = start_session(
            "pqbroker tests",
            master="local[2]",
            options={
                "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": "2",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            },
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Iterator[Served]:
    """The broker that most tests share."""
    with served() as running:
        yield running


@pytest.fixture
def topics(spark: SparkSession, broker: Served) -> Topics:
    """Topics of the shared broker, as Spark and as a plain client see them."""
    return Topics(spark, broker.kafka, LibrdkafkaDriver(broker.kafka))


@pytest.fixture
def fresh_name() -> Callable[[], str]:
    """Names that no topic has yet."""
    return lambda: f"spark-{next(_topic_numbers)}"

"""The session's jars are found in the places it names, and what is missing is said clearly."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pqbroker.pipeline.requirements import JARS_VARIABLE, SparkUnavailableError, check_java, find_jars

ARTIFACTS = [
    "spark-sql-kafka-0-10_2.13-4.2.0",
    "spark-token-provider-kafka-0-10_2.13-4.0.0",
    "kafka-clients-3.9.2",
    "commons-pool2-2.13.1",
]


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """A directory with (empty) jars of every artifact."""
    for name in ARTIFACTS:
        (tmp_path / f"{name}.jar").touch()
    return tmp_path


def test_the_directory_given_is_taken(jars: Path) -> None:
    assert [path.stem for path in find_jars(jars)] == ARTIFACTS


def test_the_environment_names_the_directory(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(jars))
    assert [path.stem for path in find_jars()] == ARTIFACTS


def test_a_missing_jar_is_named_with_the_command_that_fetches_it(jars: Path) -> None:
    (jars / "kafka-clients-3.9.2.jar").unlink()
    with pytest.raises(SparkUnavailableError, match=r"no jar of kafka-clients") as missing:
        find_jars(jars)
    _, fetch, then = str(missing.value).splitlines()
    pom = fetch.split(" -f ")[1].split()[0]
    assert Path(pom).is_file()
    assert 'copy-dependencies -DoutputDirectory="$PWD/spark-jars"' in fetch
    assert then == f'then: export {JARS_VARIABLE}="$PWD/spark-jars"'


def test_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match="install Java 17"):
        check_java()


def test_the_session_has_the_kafka_source(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "any"}
    assert "offset" in spark.readStream.format("kafka").options(**options).load().columns

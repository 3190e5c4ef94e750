"""Jobs over TLS with a certificate of their own, by a client.properties; tables by https."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pqbroker.client import Client, Column
from pqbroker.pipeline.connection_security import use_security
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.land import land
from pqbroker.pipeline.lakes.landing import Landing
from pqbroker.pipeline.relays.copy import copy
from pqbroker.pipeline.relays.copying import Copying
from pqbroker.testing import Broker, broker
from tests.support.authority import certificates


@pytest.fixture(scope="module")
def encrypted() -> Iterator[Broker]:
    with broker(tls=True, settings={"ssl.client.auth": "required"}) as running:
        yield running


@pytest.fixture
def secured(encrypted: Broker) -> Iterator[Broker]:
    use_security(encrypted.tls.properties)
    yield encrypted
    use_security(None)


def test_a_topic_is_landed_and_copied_over_tls(spark: SparkSession, secured: Broker, tmp_path: Path) -> None:
    secured.create_topic("events")
    secured.create_topic("others")
    for number in range(10):
        secured.produce("events", b"value %d" % number)
    said: list[str] = []
    landing = Landing("events", tmp_path / "lake", secured.kafka, "land-events", once=True)
    land(spark, landing, said.append, threading.Event())
    assert spark.read.parquet(str(tmp_path / "lake" / "data")).count() == 10
    copying = Copying("events", "others", tmp_path / "copy", secured.kafka, secured.kafka, once=True)
    copy(spark, copying, said.append, threading.Event())
    assert sorted(record.value or b"" for record in secured.read("others", 10)) == [
        b"value %d" % number for number in range(10)
    ]
    key = secured.tls.client.read_text().splitlines()[-2]
    assert not any(key in line for line in said)


def test_a_file_that_is_wrong_is_refused_before_spark_starts(tmp_path: Path) -> None:
    wrong = tmp_path / "client.properties"
    wrong.write_text("security.protocol=SSL\nssl.keystore.password=hidden-1\n")
    with pytest.raises(JobError, match=r"--command-config: .*ssl\.keystore\.location is not") as refused:
        use_security(wrong)
    assert "hidden" not in str(refused.value)


def test_rows_are_read_and_written_by_https(spark: SparkSession) -> None:
    made = certificates()
    with broker(settings={**made.listener(), "pqbroker.http.security.protocol": "SSL"}) as running:
        url = running.http
        with Client(url, ca=str(made.ca)) as client:
            client.table("rows").create([Column("id", "int64")], mount=True)
        options = {"http": url, "ca": str(made.ca)}
        rows = spark.createDataFrame([(1,), (2,)], "id LONG")
        rows.write.format("ordered_table").options(**options, appId="a").mode("append").save("rows")
        assert spark.read.format("ordered_table").options(**options).load("rows").count() == 2

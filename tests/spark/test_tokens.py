"""Jobs and Spark's Kafka source that log in by a token of an authorization server (OAUTHBEARER)."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pqbroker.pipeline.connection_security import allow_token, spark_options, use_security
from pqbroker.pipeline.looking import check_topics
from pqbroker.pipeline.relays.copy import copy
from pqbroker.pipeline.relays.copying import Copying
from pqbroker.testing import Broker, memory_broker
from tests.support.web_tokens import AUDIENCE, ISSUER, SigningKey, publish

KEY = SigningKey(algorithm="RS256")
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


@pytest.fixture
def locked(tmp_path: Path, spark: SparkSession) -> Iterator[Broker]:
    token, properties = tmp_path / "token", tmp_path / "client.properties"
    token.write_text(KEY.token("alice"))
    properties.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config={MODULE}\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
    )
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
        "sasl.oauthbearer.jwks.endpoint.url": publish(tmp_path / "keys.json", KEY),
        "sasl.oauthbearer.expected.issuer": ISSUER, "sasl.oauthbearer.expected.audience": AUDIENCE,
    }  # fmt: skip
    with memory_broker(users={"root": "Secret-1"}, settings=settings) as running:
        use_security(properties)
        allow_token(spark)
        yield running
    use_security(None)


def test_a_stream_and_a_job_log_in_by_a_token(spark: SparkSession, locked: Broker, tmp_path: Path) -> None:
    values = [b"value %d" % number for number in range(10)]
    for topic in ("events", "others"):
        locked.create_topic(topic)
    for value in values:
        locked.produce("events", value)
    check_topics(locked.kafka, ["events"])
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", locked.kafka)
    read = stream.options(**spark_options()).option("subscribe", "events").option("startingOffsets", "earliest").load()
    query = read.select("value").writeStream.format("memory").queryName("by_token").trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(bytes(row.value) for row in spark.table("by_token").collect()) == values
    copying = Copying("events", "others", tmp_path / "copy", locked.kafka, locked.kafka, once=True)
    copy(spark, copying, lambda line: None, threading.Event())
    assert sorted(record.value or b"" for record in locked.read("others", 10)) == values

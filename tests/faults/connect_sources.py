"""Kafka Connect with exactly-once sources under `kill -9`: python -m tests.faults.connect_sources --kills 6

A distributed worker copies a file into a topic while lines are appended, and the broker or the worker is killed. In the
end a reader of committed records finds each line once, in order. With --mechanism all of it is under TLS and logs in,
for sessions of seconds.
"""

import argparse
import json
import os
import random
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import Consumer, TopicPartition

from pqbroker.testing import FOR_TESTS, Broker, broker
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.security import OPEN, Security
from tests.support.java.program import CONNECT_FILE, further_jars
from tests.support.kafka.jars import QUICK_START, classpath, java
from tests.support.waiting import wait_until
from tests.support.web_tokens import AUDIENCE, ISSUER, SigningKey, publish

TOPIC: Final = "lines"
CONNECTOR: Final = "file"
LINES_A_SECOND: Final = 100
CALM_S: Final = (1.0, 6.0)
"""Seconds of progress between kills."""
WORKER_SHARE: Final = 0.4
"""Share of the kills that hit the worker."""
PATIENCE_S: Final = 300.0
LOOK_S: Final = 0.3
USER, PASSWORD = "connect", "Connect-secret"
SESSION_MS: Final = "5000"
"""Sessions so short that every client logs in again while it works."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"


class ConnectWorker:
    """A distributed worker of Kafka Connect: a context manager."""

    def __init__(self, directory: Path, address: str, security: Security = OPEN) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self._port = found.getsockname()[1]
        self._log = directory / "connect.log"
        self._settings = directory / "worker.properties"
        storage = {f"{name}.storage.topic": f"connect-{name}" for name in ("offset", "config", "status")}
        factors = {f"{name}.storage.replication.factor": "1" for name in ("offset", "config", "status")}
        settings = {
            "bootstrap.servers": address, "group.id": "connect", "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.partitions": "1", "status.storage.partitions": "1", "offset.flush.interval.ms": "1000",
            "listeners": f"http://127.0.0.1:{self._port}", "plugin.discovery": "service_load",
            "session.timeout.ms": "6000", "heartbeat.interval.ms": "2000", "rebalance.timeout.ms": "10000",
            "scheduled.rebalance.max.delay.ms": "0", **storage, **factors,
        }  # fmt: skip
        for prefix in ("", "producer.", "consumer.", "admin."):
            settings |= {f"{prefix}{name}": value for name, value in security.java.items()}
        self._options = security.java_options
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process; it serves some time later."""
        jars = os.pathsep.join((classpath(), further_jars(CONNECT_FILE)))
        command = [java(), *QUICK_START, *self._options, "-Xmx512m", "-cp", jars, MAIN, str(self._settings)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def has_connector(self, config: dict[str, str]) -> bool:
        """Create the connector, or change it; return True if its task runs."""
        try:
            self._ask("PUT", f"/connectors/{CONNECTOR}/config", config)
            shown = self._ask("GET", f"/connectors/{CONNECTOR}/status")
        except (OSError, HTTPException):
            return False
        if any(task["state"] == "FAILED" for task in shown["tasks"]):
            self._ask("POST", f"/connectors/{CONNECTOR}/restart?includeTasks=true&onlyFailed=true")
        return bool(shown["tasks"]) and all(task["state"] == "RUNNING" for task in shown["tasks"])

    def revive(self) -> None:
        """Restart a task that has failed, as an operator does."""
        try:
            shown = self._ask("GET", f"/connectors/{CONNECTOR}/status")
            if any(task["state"] == "FAILED" for task in shown["tasks"]):
                self._ask("POST", f"/connectors/{CONNECTOR}/restart?includeTasks=true&onlyFailed=true")
        except (OSError, HTTPException):
            pass

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}", content, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read() or b"null")


def run(directory: Path, *, kills: int, seed: int, mechanism: str = "") -> int:
    """Copy lines while the broker is killed `kills` times; return how many lines were copied. AssertionError where one
    is lost or doubled. `mechanism`: the mechanism of the logins; empty: nobody logs in."""
    chance = random.Random(seed)
    source = directory / "source.txt"
    source.touch()
    config = {
        "connector.class": "FileStreamSource", "file": str(source), "topic": TOPIC, "tasks.max": "1",
        "exactly.once.support": "required", "transaction.boundary": "poll",
    }  # fmt: skip
    with _started(directory, mechanism) as (node, security):
        with LibrdkafkaDriver(node.kafka, security) as driver:
            driver.create_topic(TOPIC)
        with ConnectWorker(directory, node.kafka, security) as worker:
            wait_until(lambda: _has_begun(worker, config), "a task of the connector", PATIENCE_S)
            with _appended(source) as written:
                for _ in range(kills):
                    time.sleep(chance.uniform(*CALM_S))
                    if chance.random() < WORKER_SHARE:
                        worker.kill()
                        worker.start()
                    else:
                        node.kill()
                        node.start()
                    _await_more(node.kafka, worker, security)
            wait_until(lambda: len(_read(node.kafka, worker, security)) >= len(written), "all lines copied", PATIENCE_S)
            found = _read(node.kafka, worker, security)
    assert found == written, _difference(found, written)
    return len(found)


@contextmanager
def _started(directory: Path, mechanism: str) -> Iterator[tuple[Broker, Security]]:
    """Start a broker; under TLS, with a login by a mechanism, if one is given. Give it, and how its clients connect."""
    if not mechanism:
        with broker(directory / "data", FOR_TESTS) as node:
            yield node, OPEN
        return
    key, token = SigningKey(algorithm="RS256"), directory / "token"
    token.write_text(key.token(USER, exp=time.time() + 86_400))
    settings = {
        **FOR_TESTS, "sasl.enabled.mechanisms": ",".join(MECHANISMS), "connections.max.reauth.ms": SESSION_MS,
        "sasl.oauthbearer.jwks.endpoint.url": publish(directory / "keys.json", key),
        "sasl.oauthbearer.expected.issuer": ISSUER, "sasl.oauthbearer.expected.audience": AUDIENCE,
    }  # fmt: skip
    with broker(directory / "data", settings, users={USER: PASSWORD}, tls=True) as node:
        shown = {"token": str(token)} if mechanism == "OAUTHBEARER" else {"user": USER, "password": PASSWORD}
        yield node, Security("SASL_SSL", mechanism, ca=str(node.tls.ca), **shown)


def _has_begun(worker: ConnectWorker, config: dict[str, str]) -> bool:
    time.sleep(LOOK_S)
    return worker.has_connector(config)


def _await_more(address: str, worker: ConnectWorker, security: Security) -> None:
    """Wait until more lines are copied than before."""
    before = len(_read(address, worker, security))
    wait_until(lambda: len(_read(address, worker, security)) > before, "more lines copied", PATIENCE_S)


@contextmanager
def _appended(source: Path) -> Iterator[list[str]]:
    """Append lines while the block runs."""
    stopping, written = threading.Event(), list[str]()

    def append() -> None:
        with source.open("a", encoding="utf-8") as lines:
            while not stopping.wait(1 / LINES_A_SECOND):
                written.append(f"line {len(written)}")
                lines.write(f"{written[-1]}\n")
                lines.flush()

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield written
    finally:
        stopping.set()
        thread.join()


def _read(address: str, worker: ConnectWorker, security: Security) -> list[str]:
    """Read the committed lines."""
    time.sleep(LOOK_S)
    worker.revive()
    consumer = Consumer(
        {
            **security.librdkafka, "bootstrap.servers": address, "group.id": "reader",
            "isolation.level": "read_committed", "log_level": 0,
            "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[str] = []
    try:
        while True:
            message = consumer.poll(30)
            if message is None or message.error() is not None:
                return found
            found.append((message.value() or b"").decode())
    finally:
        consumer.close()


def _difference(found: list[str], written: list[str]) -> str:
    place = next((number for number, pair in enumerate(zip(found, written, strict=False)) if pair[0] != pair[1]), -1)
    return f"{len(found)} of {len(written)} lines; from {place} on {found[place : place + 5]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.connect_sources", description=__doc__)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--mechanism", default="", choices=MECHANISMS, help="log in by it, under TLS")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pqbroker-connect-") as scratch:
        lines = run(Path(scratch), kills=options.kills, seed=options.seed, mechanism=options.mechanism)
    how = f" under TLS by {options.mechanism}" if options.mechanism else ""
    print(f"{options.kills} kills of broker and worker{how}: {lines} lines, each copied once (seed {options.seed})")


if __name__ == "__main__":
    main()

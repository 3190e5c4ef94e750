"""A registry whose `_schemas` topic is cleaned has all its schemas, also behind kills of the broker."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.testing import Broker, BrokerRefusedError, broker
from tests.compat.schema_registry import CONFIGS, TOPIC, SchemaRegistry
from tests.support.cleaning import clean_topic, settled

ROUNDS = 4
SUBJECTS = [f"orders-{number}-value" for number in range(6)]
SCHEMA = '{"type": "record", "name": "Order", "fields": [%s]}'


class Model:
    """Schemas and levels that a registry was asked for."""

    def __init__(self) -> None:
        self.deleted: dict[tuple[str, int], bool] = {}
        self.schemas: dict[tuple[str, int], tuple[int, str]] = {}
        self.levels: dict[str, str] = {}

    def use(self, registry: SchemaRegistry, round_number: int) -> None:
        """Register, delete and configure, and note what should be there then."""
        for number, subject in enumerate(SUBJECTS):
            schema = SCHEMA % f'"field {round_number}"'
            identity, version = registry.register(subject, schema)
            self.schemas[subject, version] = identity, schema
            self.deleted[subject, version] = False
            for level in ("FULL", "NONE", f"BACKWARD-{round_number}"):
                registry.set_level(subject, level)
                self.levels[subject] = level
            if number % 2 and version > 1:
                registry.delete_softly(subject, version - 1)
                self.deleted[subject, version - 1] = True
            if number % 4 == 3 and version > 2:
                registry.delete(subject, version - 2)
                del self.schemas[subject, version - 2], self.deleted[subject, version - 2]

    def check(self, registry: SchemaRegistry) -> None:
        found = registry.schemas
        assert {place: (one["id"], one["schema"]) for place, one in found.items()} == self.schemas
        assert {place: one["deleted"] for place, one in found.items()} == self.deleted
        assert registry.levels == self.levels


class Cleaning:
    """A thread that has the topic cleaned again and again."""

    def __init__(self, calls: HttpCalls) -> None:
        self.passes = 0
        self.began = threading.Event()
        self._calls = calls
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                clean_topic(self._calls, TOPIC)
                self.passes += 1
                self.began.set()
            except (OSError, BrokerRefusedError):  # the broker was killed, or is starting
                self._is_over.wait(0.01)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Broker]:
    with broker(tmp_path / "data") as started:
        started.create_topic(TOPIC, configs=CONFIGS)
        yield started


def test_a_registry_has_all_its_schemas_behind_cleanings_and_kills(running: Broker) -> None:
    calls = HttpCalls(lambda: running.http)
    model = Model()
    cleaning = Cleaning(calls)
    try:
        for number in range(ROUNDS):
            with SchemaRegistry(running.kafka) as registry:
                model.check(registry)
                model.use(registry, number)
                model.check(registry)
            cleaning.began.clear()
            running.kill()
            running.start()
            assert cleaning.began.wait(30), "a cleaning after the start"
    finally:
        cleaning.end()
    assert cleaning.passes > ROUNDS
    running.kill()
    running.start()
    with SchemaRegistry(running.kafka) as registry:
        model.check(registry)
    gone = clean_topic(calls, TOPIC)["end_offset"]
    with SchemaRegistry(running.kafka) as registry:
        model.check(registry)
        assert registry.read < gone / 2
    assert settled(calls, TOPIC)["state"] in ("clean", "waiting")

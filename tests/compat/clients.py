"""The clients of the matrix, and how each is started; what none of them needs is not started."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from tests.support.drivers.aiokafka_driver import AiokafkaDriver
from tests.support.drivers.driver import Driver, Message
from tests.support.drivers.java_driver import JavaClient, JavaDriver
from tests.support.drivers.kafka_python_driver import KafkaPythonDriver
from tests.support.drivers.kcat_driver import KcatDriver
from tests.support.drivers.librdkafka_driver import LibrdkafkaDriver
from tests.support.drivers.member import Member
from tests.support.drivers.security import OPEN, Security
from tests.support.java.program import NEWER, OLDER

LIBRARIES: dict[str, Callable[[str, Security], Driver]] = {
    "aiokafka": AiokafkaDriver,
    "kafka-python": KafkaPythonDriver,
    "confluent-kafka": LibrdkafkaDriver,
}
JAVA = {f"Java kafka-clients {version}": version for version in (OLDER, NEWER)}
KCAT = "kcat"
DRIVEN = (*LIBRARIES, *JAVA)
CLIENTS = (*LIBRARIES, KCAT, *JAVA)
MODERN = {f"{name}, `group.protocol=consumer`": name for name in ("confluent-kafka", *JAVA)}
"""Clients as members of groups of KIP-848."""


class AnyMember(Protocol):
    """A member of a group, whoever drives it: see `member.Member`."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    @property
    def received(self) -> list[tuple[int, int]]: ...
    @property
    def assignments(self) -> list[frozenset[int]]: ...
    @property
    def owned(self) -> frozenset[int]: ...
    def commit(self) -> None: ...
    def leave(self) -> None: ...


class Clients:
    """Every client, talking to one broker; a context manager that ends the programs it started."""

    def __init__(self, address: str, security: Security = OPEN) -> None:
        self._address = address
        self._security = security
        self._java: dict[str, JavaClient] = {}
        self._running = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def driver(self, name: str) -> Driver:
        """A driver of one of `DRIVEN`, for the caller to close."""
        if name in LIBRARIES:
            return LIBRARIES[name](self._address, self._security)
        if name not in self._java:
            self._java[name] = self._running.enter_context(JavaClient(self._address, JAVA[name], self._security))
        return JavaDriver(self._java[name])

    def produce(self, name: str, topic: str, messages: Sequence[Message]) -> None:
        """Any client writes."""
        if name == KCAT:
            KcatDriver(self._address, self._security).produce(topic, messages)
        else:
            with self.driver(name) as driver:
                driver.produce(topic, messages)

    def read(self, name: str, topic: str, count: int, offset: int = 0) -> list[tuple[int, Message]]:
        """Any client reads partition 0."""
        if name == KCAT:
            return KcatDriver(self._address, self._security).read(topic, count=count, offset=offset)
        with self.driver(name) as driver:
            return driver.read(topic, count=count, offset=offset)

    def member(self, name: str, topic: str, group: str, instance_id: str | None = None) -> AnyMember:
        """Any client joins a group."""
        if name == KCAT:
            return KcatDriver(self._address, self._security).member(topic, group, instance_id)
        if name in MODERN:
            return Member(partial(self._modern(MODERN[name]).consumer, topic, group, instance_id, "consumer"))
        driver = self.driver(name)
        return Member(lambda: driver.consumer(topic, group, instance_id))

    def _modern(self, name: str) -> LibrdkafkaDriver | JavaDriver:
        driver = self.driver(name)
        assert isinstance(driver, LibrdkafkaDriver | JavaDriver), name
        return driver

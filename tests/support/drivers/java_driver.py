"""The driver for Kafka's Java client: a Java program does what it is asked to over a socket (tests/support/java)."""

import base64
import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.support.drivers.driver import (
    FETCH_BYTES,
    HEARTBEAT_MS,
    METADATA_MS,
    REQUEST_TIMEOUT_S,
    SESSION_MS,
    Cluster,
    Group,
    Message,
    RefusedError,
)
from tests.support.drivers.security import OPEN, Security
from tests.support.java import program


class JavaClient:
    """One running program with the client of one version, shared by drivers; a context manager that ends it."""

    def __init__(self, address: str, version: str, security: Security = OPEN) -> None:
        own = [f"{name}={text}" for name, text in security.java.items()]
        self._process: subprocess.Popen[str] = program.start(
            "Client", [address, *own], version, security.java_options
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        program.stop(self._process)


class JavaDriver:
    """See `driver.Driver`."""

    def __init__(self, client: JavaClient) -> None:
        self._client = client
        self._opened: _Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened.close()

    @property
    def _session(self) -> "_Session":
        """Opened when it is first needed; each consumer has one of its own."""
        self._opened = self._opened or _Session(self._client.port)
        return self._opened

    def produce(
        self, topic: str, messages: Sequence[Message], *, partition: int = 0, codec: str = "none",
        acks: int = -1, idempotent: bool = True,
    ) -> list[int]:  # fmt: skip
        words = [topic, partition, codec, acks, str(idempotent).lower()]
        for message in messages:
            words += [message.timestamp_ms, _word(message.key), _word(message.value), len(message.headers)]
            words += [word for name, value in message.headers for word in (name, _word(value))]
        offsets: list[int] = self._session.ask("produce", *words)
        return [] if acks == 0 else offsets

    def read(self, topic: str, *, count: int, partition: int = 0, offset: int = 0) -> list[tuple[int, Message]]:
        found = self._session.ask("read", topic, partition, offset, count)
        assert len(found) == count, f"{len(found)} of {count} records"
        return [_received(record) for record in found]

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        first, after_last = self._session.ask("bounds", topic, partition)
        return first, after_last

    def offset_at(self, topic: str, timestamp_ms: int, partition: int = 0) -> int | None:
        found: int = self._session.ask("offset_at", topic, partition, timestamp_ms)
        return found if found >= 0 else None

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        self._session.ask("create_topic", name, partitions, *_pairs(config or {}))

    def delete_topic(self, name: str) -> None:
        self._session.ask("delete_topic", name)

    def grow_topic(self, name: str, partitions: int) -> None:
        self._session.ask("grow_topic", name, partitions)

    def topics(self) -> dict[str, int]:
        return dict(self._session.ask("topics"))

    def topic_config(self, name: str) -> dict[str, str]:
        return dict(self._session.ask("topic_config", name))

    def alter_topic(self, name: str, config: Mapping[str, str]) -> None:
        self._session.ask("alter_topic", name, *_pairs(config))

    def trim_topic(self, name: str, before: int, partition: int = 0) -> None:
        self._session.ask("trim_topic", name, partition, before)

    def cluster(self) -> Cluster:
        told = self._session.ask("cluster")
        return Cluster(told["id"], told["controller"], {int(node): told["brokers"][node] for node in told["brokers"]})

    def consumer(
        self, topic: str, group: str, instance_id: str | None = None, protocol: str = "classic"
    ) -> "JavaConsumer":
        return JavaConsumer(_Session(self._client.port), topic, group, instance_id, protocol)

    def reader(self, topic: str, group: str) -> "JavaReader":
        return JavaReader(_Session(self._client.port), topic, group)

    def groups(self) -> set[str]:
        return set(self._session.ask("groups"))

    def group(self, name: str) -> Group:
        told = self._session.ask("group", name)
        return Group(told["state"], len(told["members"]))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        told = self._session.ask("committed", group, topic)
        return {int(partition): offset for partition, offset in told.items()}

    def delete_group(self, name: str) -> None:
        self._session.ask("delete_group", name)

    def calls(self, topic: str, group: str) -> dict[str, str]:
        """What came of each call of the admin client that web consoles make."""
        return dict(self._session.ask("calls", topic, group))


class JavaConsumer:
    """See `driver.GroupConsumer`."""

    def __init__(
        self, session: "_Session", topic: str, group: str, instance_id: str | None, protocol: str
    ) -> None:
        self._session = session
        self.assignments: list[frozenset[int]] = []
        session.ask("join", group, topic, instance_id or "-", SESSION_MS, HEARTBEAT_MS, METADATA_MS, protocol)

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        told = self._session.ask("poll", int(timeout_s * 1000))
        self.assignments = [frozenset(partitions) for partitions in told["assignments"]]
        return [(partition, offset) for partition, offset in told["records"]]

    def commit(self) -> None:
        self._session.ask("commit")

    def close(self) -> None:
        self._session.ask("leave")
        self._session.close()


class JavaReader:
    """See `driver.PartitionReader`."""

    def __init__(self, session: "_Session", topic: str, group: str) -> None:
        self._session = session
        session.ask("assign", group, topic, FETCH_BYTES)

    def poll(self, timeout_s: float) -> list[tuple[int, Message]]:
        return [_received(record) for record in self._session.ask("take", int(timeout_s * 1000))]

    def seek(self, offset: int) -> None:
        self._session.ask("seek", offset)

    def position(self) -> int:
        position: int = self._session.ask("position")
        return position

    def commit(self) -> None:
        self._session.ask("commit")

    def close(self) -> None:
        self._session.ask("leave")
        self._session.close()


class _Session:
    """A connection to the program: one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=3 * REQUEST_TIMEOUT_S)
        self._lines = self._socket.makefile("rw", encoding="utf-8", newline="\n")

    def ask(self, *words: object) -> Any:
        self._lines.write("\t".join(map(str, words)) + "\n")
        self._lines.flush()
        told = json.loads(self._lines.readline())
        if "error" in told:
            assert told["error"] > 0, told["text"]
            raise RefusedError(told["error"])
        return told["answer"]

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def _word(content: bytes | None) -> str:
    return "-" if content is None else base64.b64encode(content).decode()


def _content(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _pairs(config: Mapping[str, str]) -> list[str]:
    return [word for pair in config.items() for word in pair]


def _received(record: Any) -> tuple[int, Message]:
    offset, timestamp_ms, key, value, headers = record
    return offset, Message(
        _content(value), _content(key), tuple((name, _content(text)) for name, text in headers), timestamp_ms
    )

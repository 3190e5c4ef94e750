"""A single Apache Kafka broker (KRaft, broker and controller in one process) on free ports, with data of its own."""

import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.kafka.jars import QUICK_START, classpath, java

_START_TIMEOUT_S = 60
_CLUSTER_ID = "pqbrokerOracle00000000"
_PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
# Log4j without a configuration prints errors only, which is what is wanted here.
KAFKAS_JVM = (
    "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
"""What Kafka's own start script sets; a broker that is measured has it."""


class KafkaStartError(Exception):
    """The broker did not start; the text ends with what it printed."""


class ApacheKafka:
    """A context manager: inside it Kafka answers at `.kafka`; afterwards it is stopped and its data is gone."""

    def __init__(
        self, directory: Path | None = None, *, properties: Mapping[str, str | None] | None = None, heap: str = "1g",
        jvm: Sequence[str] = QUICK_START, encrypted: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`directory`: where one for the data is made; `properties`: added to server.properties, None: left out.
        `encrypted`: settings of a listener SSL beside the plain one."""
        self._encrypted = encrypted
        self.encrypted = ""
        """The address of the listener SSL, HOST:PORT."""
        self._directory = Path(tempfile.mkdtemp(prefix="apache-kafka-", dir=directory))
        self._extra = dict(properties or {})
        self._heap = heap
        self._jvm = jvm
        self._process: subprocess.Popen[bytes] | None = None
        self.properties: dict[str, str] = {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def kafka(self) -> str:
        """The address that clients connect to, HOST:PORT."""
        return self.properties["advertised.listeners"].split(",")[0].removeprefix("PLAINTEXT://")

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        assert self._process is not None
        return self._process.pid

    @property
    def command(self) -> list[str]:
        """What starts the broker, but for the class path."""
        return [f"-Xms{self._heap}", f"-Xmx{self._heap}", *self._jvm, "kafka.Kafka"]

    def start(self) -> None:
        """Format the storage and start; returns when the broker answers. KafkaStartError when it does not."""
        port, controller_port = _free_ports(2)
        wanted = {**_properties(self._directory / "log", port, controller_port), **self._extra}
        if self._encrypted is not None:
            self.encrypted = f"127.0.0.1:{_free_ports(1)[0]}"
            wanted |= {"listener.security.protocol.map": _PROTOCOLS, **self._encrypted}
            for name in ("listeners", "advertised.listeners"):
                wanted[name] = f"{wanted[name]},SSL://{self.encrypted}"
        self.properties = {name: value for name, value in wanted.items() if value is not None}
        config = self._directory / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))
        self._format(config)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [java(), "-cp", classpath(), *self.command, str(config)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=self._directory,
            )  # fmt: skip
        self._await_answer(port)

    def stop(self) -> None:
        """Kill the broker, since nobody wants its data any more, and delete that; nothing happens the second time."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def _output(self) -> Path:
        return self._directory / "output.txt"

    def _format(self, config: Path) -> None:
        tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", _CLUSTER_ID, "-c", str(config)]
        run = subprocess.run(
            [java(), *QUICK_START, "-cp", classpath(), *tool],
            capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=False, env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
        if run.returncode != 0:
            raise KafkaStartError(f"formatting Kafka's storage failed:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")

    def _await_answer(self, port: int) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not _answers(port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise KafkaStartError(f"Kafka did not start:\n{self._output.read_text(errors='replace')[-4000:]}")
            time.sleep(0.05)


def _properties(log_directory: Path, port: int, controller_port: int) -> dict[str, str]:
    """Kafka's defaults but for what a single node needs, and deleted topics leave the disk at once."""
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    controller = f"127.0.0.1:{controller_port}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": controller,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listener},CONTROLLER://{controller}",
        "advertised.listeners": listener,
        "log.dirs": str(log_directory),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.segment.delete.delay.ms": "0",
    }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _answers(port: int) -> bool:
    """Whether a request for the API versions is answered."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(_API_VERSIONS_V0)
            return len(connection.recv(1)) == 1
    except OSError:
        return False

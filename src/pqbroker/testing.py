"""A real broker in a child process, for tests: on free ports, killed and restarted at will. Needs no test framework.

with broker() as running:
    producer = AIOKafkaProducer(bootstrap_servers=running.kafka)
"""

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

MEMORY = ":memory:"
_READY_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0
_LOG_TAIL_CHARACTERS = 4000


class BrokerFailedError(Exception):
    """The broker did not start or did not stop as it should; the text ends with the last lines of its log."""


class Broker:
    """One broker process and its addresses; it can be killed, stopped and started again on the same ports and data."""

    def __init__(self, directory: Path | str, settings: Mapping[str, str], log_file: Path, log_level: str) -> None:
        self.directory = directory
        self.kafka = "127.0.0.1:0"
        """HOST:PORT of the Kafka protocol, once started."""
        self.http = "127.0.0.1:0"
        """HOST:PORT of /health and /metrics, once started."""
        self._settings = settings
        self._log_file = log_file
        self._log_level = log_level
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there: started, and ended neither by us nor by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the broker has written to its log so far, restarts included."""
        return self._log_file.read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start the process and return when it serves."""
        assert self._process is None, "the broker is started already"
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=_environment()
            )
        try:
            self._read_addresses(self._ready_line())
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """kill -9: what a crash of the process leaves behind."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def stop(self) -> None:
        """SIGTERM: drain, close, exit. Raises BrokerFailedError when it does not exit, or not with 0, or has before."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            status = self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failed(f"did not stop within {_STOP_TIMEOUT_S:g} s") from None
        self._forget()
        if status != 0:
            raise self._failed(f"exited with {status}")

    def restart(self) -> None:
        """Stop the process if it runs, and start it on the same ports and data."""
        self.stop()
        self.start()

    def _command(self) -> list[str]:
        """The command line; -P keeps a module of the caller's directory from standing in for one of ours."""
        command = [sys.executable, "-P", "-m", "pqbroker", "serve", "--kafka", self.kafka, "--http", self.http]
        command += ["--data", str(self.directory), "--log-level", self._log_level]
        for name, text in self._settings.items():
            command += ["--set", f"{name}={text}"]
        return command

    def _ready_line(self) -> str:
        """The one line the broker prints when it serves."""
        assert self._process is not None
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        deadline = time.monotonic() + _READY_TIMEOUT_S
        line = b""
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise self._failed(f"was not ready within {_READY_TIMEOUT_S:g} s")
            received = os.read(output, 4096)
            if not received:
                raise self._failed(f"exited with {self._process.wait()} before it was ready")
            line += received
        return line.decode()

    def _read_addresses(self, line: str) -> None:
        word, *fields = line.split(maxsplit=3)
        addresses = dict(field.partition("=")[::2] for field in fields)
        if word != "ready" or not {"kafka", "http"} <= addresses.keys():
            raise self._failed(f"printed {line!r} instead of its ready line")
        self.kafka = addresses["kafka"]
        self.http = addresses["http"]

    def _forget(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def _failed(self, what: str) -> BrokerFailedError:
        return BrokerFailedError(f"the broker {what}; its log ends:\n{self.log[-_LOG_TAIL_CHARACTERS:]}")


@contextmanager
def broker(
    directory: Path | str | None = None, settings: Mapping[str, str] | None = None, *, log_level: str = "info"
) -> Iterator[Broker]:
    """A broker that serves, stopped at the end.

    `directory` holds its data and stays; None is a temporary one, MEMORY none at all. `settings` are names and values
    as in a config file; the environment's do not count. Raises BrokerFailedError when it does not start or stop.
    """
    with tempfile.TemporaryDirectory(prefix="pqbroker-") as scratch:
        log_file = Path(scratch, "log")
        log_file.touch()
        started = Broker(directory or Path(scratch, "data"), settings or {}, log_file, log_level)
        try:
            started.start()
            yield started
        except BaseException:
            started.kill()
            raise
        started.stop()


def _environment() -> dict[str, str]:
    """The caller's environment without settings of a broker."""
    return {name: text for name, text in os.environ.items() if not name.startswith("PQBROKER_")}

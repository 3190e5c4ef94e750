"""The driver for kcat, a command line: it writes, reads and joins groups; it does not administer."""

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import IO, Self

from tests.support.drivers.driver import HEARTBEAT_MS, REQUEST_TIMEOUT_S, SESSION_MS, Message
from tests.support.drivers.member import tell_of_change
from tests.support.drivers.security import OPEN, Security

_ASSIGNED = re.compile(r"^% Group .* rebalanced .*: assigned:(.*)$")
_PARTITION = re.compile(r"\[(\d+)\]")


class KcatDriver:
    """The part of `driver.Driver` that kcat can do; keys and values are texts without tabs."""

    def __init__(self, address: str, security: Security = OPEN) -> None:
        program = shutil.which("kcat")
        assert program, "kcat is missing; install it (on Debian: apt-get install kcat)"
        own = [word for name, text in security.librdkafka.items() for word in ("-X", f"{name}={text}")]
        self._command = [program, "-b", address, "-X", "broker.address.family=v4", *own]

    def produce(self, topic: str, messages: Sequence[Message], *, partition: int = 0) -> None:
        lines = [b"%s\t%s" % (message.key or b"", message.value or b"") for message in messages]
        self._run(["-P", "-t", topic, "-p", str(partition), "-K", "\t"], b"\n".join(lines))

    def read(self, topic: str, *, count: int, partition: int = 0, offset: int = 0) -> list[tuple[int, Message]]:
        wanted = ["-C", "-t", topic, "-p", str(partition), "-o", str(offset), "-c", str(count)]
        lines = self._run([*wanted, "-q", "-f", "%o\t%T\t%k\t%s\n"]).splitlines()
        words = [line.split(b"\t") for line in lines]
        return [(int(at), Message(value, key, timestamp_ms=int(time))) for at, time, key, value in words]

    def member(self, topic: str, group: str, instance_id: str | None = None) -> "KcatMember":
        """A member of a group; like `member.Member`."""
        return KcatMember(self._command, topic, group, instance_id)

    def _run(self, arguments: Sequence[str], content: bytes = b"") -> bytes:
        done = subprocess.run(
            [*self._command, *arguments], input=content, capture_output=True, timeout=2 * REQUEST_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout


class KcatMember:
    """A kcat that consumes in a group until it is told to leave."""

    def __init__(self, command: Sequence[str], topic: str, group: str, instance_id: str | None) -> None:
        settings = [
            "auto.offset.reset=earliest", f"session.timeout.ms={SESSION_MS}", f"heartbeat.interval.ms={HEARTBEAT_MS}"
        ]  # fmt: skip
        if instance_id:
            settings.append(f"group.instance.id={instance_id}")
        options = [word for setting in settings for word in ("-X", setting)]
        self.received: list[tuple[int, int]] = []
        self.assignments: list[frozenset[int]] = []
        self._said: list[str] = []
        self._process = subprocess.Popen(
            [*command, *options, "-u", "-f", "%p %o\n", "-G", group, topic],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
        self._threads = [
            threading.Thread(target=_follow, args=(self._process.stdout, self._take)),
            threading.Thread(target=_follow, args=(self._process.stderr, self._hear)),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.leave()

    @property
    def owned(self) -> frozenset[int]:
        """See `member.Member`."""
        assert self._process.poll() is None, "".join(self._said)
        return self.assignments[-1] if self.assignments else frozenset()

    def commit(self) -> None:
        """kcat commits by itself, the last time when it leaves."""

    def leave(self) -> None:
        """Stop it as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        status = self._process.wait(REQUEST_TIMEOUT_S)
        for thread in self._threads:
            thread.join()
        assert status == 0, "".join(self._said)

    def _take(self, line: str) -> None:
        partition, offset = map(int, line.split())
        self.received.append((partition, offset))

    def _hear(self, line: str) -> None:
        self._said.append(line)
        assigned = _ASSIGNED.match(line)
        if assigned:
            self.assignments.append(frozenset(map(int, _PARTITION.findall(assigned[1]))))


def _follow(stream: IO[str], take: Callable[[str], None]) -> None:
    with stream:
        for line in stream:
            take(line)
            tell_of_change()

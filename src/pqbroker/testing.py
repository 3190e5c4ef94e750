"""A real broker for tests: on free ports, killed and restarted at will, with faults on cue. Needs no test framework.

with broker() as running:
    producer = AIOKafkaProducer(bootstrap_servers=running.kafka)
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

from pqbroker.fixture.client_files import ClientFiles as ClientFiles
from pqbroker.fixture.http_calls import BrokerRefusedError as BrokerRefusedError
from pqbroker.fixture.http_calls import HttpCalls
from pqbroker.fixture.process import BrokerFailedError as BrokerFailedError
from pqbroker.fixture.process import BrokerProcess
from pqbroker.fixture.records import Content, Headers, Written, posted, taken
from pqbroker.fixture.records import Record as Record
from pqbroker.fixture.runner import Runner
from pqbroker.fixture.users import ALL_MECHANISMS, Listening, Users

T = TypeVar("T")

MEMORY = ":memory:"
FOR_TESTS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "pqbroker.test.door": "true",
}
"""Settings of the brokers that fixtures give: the first member of a group waits for no other, members of the consumer
protocol learn of changes within a fraction of a second, and faults come on cue."""
WAIT_TIMEOUT_S = 10.0
_NO_TOPIC, _AUTO_CREATE = "UNKNOWN_TOPIC_OR_PARTITION", "auto.create.topics.enable"
CLEAN_TIMEOUT_S = 60.0
"""Time for the passes over a topic: the first one starts a process."""
_LOOK_S = 0.005
_PAUSE_LIMIT_S = 60.0


class Fault:
    """A fault that is on until `end`, the end of its `with` block, or until it was met often enough."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end
        """End it, if it is not over: answers that it holds leave."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Broker:
    """One broker and its addresses; it can be killed, stopped and started again on the same ports and data.

    Faults need `pqbroker.test.door=true` (`FOR_TESTS`). Calls wait for the broker: in a coroutine those that may wait
    long belong into `asyncio.to_thread`. BrokerRefusedError says why the broker refused one.
    """

    def __init__(self, runner: Runner, tls: ClientFiles | None = None, users: Users | None = None) -> None:
        self._runner = runner
        self._tls = tls
        self._users = users
        login = () if users is None else (users.first, users.first_password)
        self._calls = HttpCalls(lambda: runner.http, *login)

    @property
    def kafka(self) -> str:
        """HOST:PORT of the Kafka protocol, once started."""
        return self._runner.kafka

    @property
    def http(self) -> str:
        """HOST:PORT of /health, /metrics and /v1, once started."""
        return self._runner.http

    @property
    def tls(self) -> ClientFiles:
        """Certificates for its clients, where it was made with `tls=True`."""
        assert self._tls is not None, "the broker is without TLS: give tls=True"
        return self._tls

    def login(self, user: str = "", mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        """Return what the client.properties of a user say, of the first one unless named, where it was made with
        `users`."""
        assert self._users is not None, "the broker is without users: give users={NAME: PASSWORD}"
        found = self._users.properties(user or self._users.first, mechanism)
        if self._tls is None:
            return {"security.protocol": "SASL_PLAINTEXT", **found}
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self._tls.ca)}
        return {"security.protocol": "SASL_SSL", **trust, **found}

    def add_users(self) -> None:
        """Make the users that it was made with, but the first, which its start makes."""
        for name, password in list(self._users.passwords.items())[1:] if self._users is not None else ():
            self._calls.ask("PUT", f"/v1/users/{quote(name, safe='')}", {"password": password})

    @property
    def pid(self) -> int:
        """Id of the process that it runs in."""
        return self._runner.pid

    @property
    def running(self) -> bool:
        """Return True if the broker runs: started, and ended neither by us nor by itself."""
        return self._runner.running

    @property
    def log(self) -> str:
        """Return what the broker has written to its log so far, restarts included."""
        return self._runner.log

    def start(self) -> None:
        """Start it and return when it serves: BrokerFailedError."""
        self._runner.start()

    def kill(self) -> None:
        """kill -9: what a crash leaves behind."""
        self._runner.kill()

    def stop(self) -> None:
        """Finish requests, close, end. BrokerFailedError when it does not, not in order, or ended before."""
        self._runner.stop()

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same ports and data."""
        self.stop()
        self.start()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Create a topic; returns its name."""
        body = {"name": name, "partitions": partitions, "config": dict(configs or {})}
        self._calls.ask("POST", "/v1/topics", body)
        return name

    def delete_topic(self, name: str) -> None:
        self._calls.ask("DELETE", f"/v1/topics/{name}")

    def produce(
        self, topic: str, value: Content, *, key: Content = None, partition: int | None = None, headers: Headers = ()
    ) -> Written:
        """Write one record; returns where it is. Without a partition the key decides. A topic that is missing is
        created as for a Kafka client, unless auto.create.topics.enable is false: BrokerRefusedError then."""
        body = {"records": [posted(value, key, partition, headers)]}
        try:
            answer = self._calls.ask("POST", f"/v1/topics/{topic}/records", body)
        except BrokerRefusedError as refusal:
            if refusal.code != _NO_TOPIC or not self._creates_topics() or not self._is_created(topic):
                raise
            answer = self._calls.ask("POST", f"/v1/topics/{topic}/records", body)
        (place,) = answer["offsets"]
        return Written(place["partition"], place["offset"])

    def _creates_topics(self) -> bool:
        """Return True if the broker creates topics for clients that name one that is missing."""
        (found,) = self._calls.ask("GET", f"/v1/settings?after={_AUTO_CREATE[:-1]}&limit=1")["settings"]
        assert found["name"] == _AUTO_CREATE, "the settings are sorted by name"
        return str(found["value"]).lower() == "true"

    def _is_created(self, topic: str) -> bool:
        """Create a topic by the broker's defaults. Return False if it exists already, and lacks the partition."""
        try:
            self._calls.ask("POST", "/v1/topics", {"name": topic})
        except BrokerRefusedError as refusal:
            if refusal.code != "TOPIC_ALREADY_EXISTS":
                raise
            return False
        return True

    def read(
        self, topic: str, count: int = 0, *, partition: int | None = None, timeout_s: float = WAIT_TIMEOUT_S
    ) -> list[Record]:
        """Return every record of a topic, or of one partition, by partition and offset. TimeoutError.

        Waits until there are `count` or more.
        """
        found: list[Record] = []

        def look() -> bool:
            found[:] = _records(self._calls, topic, partition)
            return len(found) >= count

        try:
            self.wait_until(look, timeout_s=timeout_s)
        except TimeoutError:
            raise TimeoutError(f"{topic} has {len(found)} of {count} records after {timeout_s:g} s") from None
        return found

    def clean(self, topic: str, *, timeout_s: float = CLEAN_TIMEOUT_S) -> None:
        """Clean a compacted topic: of each key the last record stays. Return when it is done: TimeoutError,
        BrokerRefusedError for a topic that is not compacted, BrokerFailedError where a pass fails."""
        path = f"/v1/topics/{topic}"
        for one in self._calls.ask("POST", f"{path}/clean", {})["partitions"]:
            if not one["is_cleaned"]:
                continue
            look = partial(self._settled, f"{path}/partitions/{one['partition']}")
            found = self.wait_until(look, f"{topic}-{one['partition']} cleaned", timeout_s=timeout_s)
            if found["state"] == "failed":
                raise BrokerFailedError(f"cleaning of {topic}-{one['partition']}: {found['text']}")

    def _settled(self, path: str) -> Any:
        """Return how a partition's cleaning stands; None while a pass is under way or due."""
        found = self._calls.ask("GET", path)["cleaning"]
        return None if found["state"] in ("cleaning", "due") else found

    def wait_until(self, condition: Callable[[], T], what: str = "", *, timeout_s: float = WAIT_TIMEOUT_S) -> T:
        """Ask until the condition returns something true, and return that; TimeoutError, which names `what`."""
        deadline = time.monotonic() + timeout_s
        while not (found := condition()):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"after {timeout_s:g} s still not: {what or 'what was waited for'}")
            time.sleep(_LOOK_S)
        return found

    def fail(
        self, api: str | int, error: str, *,
        topic: str | None = None, partition: int | None = None, times: int | None = 1,
    ) -> Fault:  # fmt: skip
        """Answer requests of an API (Kafka's name, or key) with an error of Kafka's, and do not perform them.

        With a topic (and partition) that part of a request alone. `times` None: until the fault is ended.
        """
        return self._begin(act="error", api=api, error=error, topic=topic, partition=partition, times=times)

    def delay(
        self, api: str | int | None, seconds: float, *,
        topic: str | None = None, partition: int | None = None, times: int | None = None,
    ) -> Fault:  # fmt: skip
        """Perform requests of an API (None: of all) at once, and answer them so much later."""
        hold_ms = _milliseconds(seconds)
        return self._begin(act="delay", api=api, hold_ms=hold_ms, topic=topic, partition=partition, times=times)

    def disconnect(
        self, api: str | int | None = None, *,
        performed: bool = False, topic: str | None = None, partition: int | None = None, times: int | None = 1,
    ) -> Fault:  # fmt: skip
        """Close the connection of requests of an API: before they are performed, or instead of the answer."""
        asked = {"api": api, "topic": topic, "partition": partition, "times": times}
        return self._begin(act="disconnect", performed=performed, **asked)

    def pause(
        self, api: str | int | None = None, *,
        topic: str | None = None, partition: int | None = None, limit_s: float = _PAUSE_LIMIT_S,
    ) -> Fault:  # fmt: skip
        """Perform requests of an API (None: of all) and answer none until the fault is ended, or after `limit_s`."""
        return self._begin(act="pause", api=api, hold_ms=_milliseconds(limit_s), topic=topic, partition=partition)

    def refuse_commit(self, after: int = 0) -> None:
        """Have the store refuse the next commit, or the one behind `after` more: clients get KAFKA_STORAGE_ERROR."""
        self._calls.ask("POST", "/v1/test/store", {"fault": "refuse_next", "after": after})

    def fill_disk(self) -> Fault:
        """Have the disk be full: writes are refused with KAFKA_STORAGE_ERROR, reads work."""
        self._calls.ask("POST", "/v1/test/store", {"fault": "fill"})
        return Fault(partial(self._calls.ask, "POST", "/v1/test/store", {"fault": "make_room"}))

    def advance_clock(self, seconds: float) -> None:
        """Move the broker's clock: retention, timestamps by LogAppendTime, sessions of groups and expiry follow."""
        self._calls.ask("POST", "/v1/test/clock", {"advance_ms": _milliseconds(seconds)})

    @property
    def faults(self) -> Sequence[Mapping[str, Any]]:
        """Faults of requests that are on, as `GET /v1/test/faults` shows them."""
        found: Sequence[Mapping[str, Any]] = self._calls.ask("GET", "/v1/test/faults")["faults"]
        return found

    def clear_faults(self) -> None:
        """End every fault, of requests and of the store. The clock stays where it is."""
        self._calls.ask("DELETE", "/v1/test/faults")

    def _begin(self, **cue: Any) -> Fault:
        given = {name: value for name, value in cue.items() if value is not None}
        number = self._calls.ask("POST", "/v1/test/faults", given)["fault"]
        return Fault(partial(_end, self._calls, number))


class Serving:
    """A broker that serves from the start of a `with` or `async with` block to its end."""

    def __init__(self, context: AbstractContextManager[Broker]) -> None:
        self._context = context

    def __enter__(self) -> Broker:
        return self._context.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._context.__exit__(kind, error, trace)

    async def __aenter__(self) -> Broker:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await asyncio.to_thread(self.__exit__, kind, error, trace)


def broker(
    directory: Path | str | None = None, settings: Mapping[str, str] | None = None, *, log_level: str = "info",
    tls: bool = False, users: Mapping[str, str] | None = None,
) -> Serving:  # fmt: skip
    """A broker in a process of its own that serves, stopped at the end of the block.

    `directory` holds its data and stays; None is a temporary one, MEMORY none at all. `settings` are names and values
    as in a config file; the environment's do not count. With `tls` its Kafka address is under TLS, and `Broker.tls` has
    files for clients; one with the client's certificate is the user `User:CN=client`. With `users`, passwords by name,
    its clients log in (`Broker.login`); the first one is a super user. Raises BrokerFailedError when it does not start
    or stop.
    """
    if isinstance(directory, Mapping):
        raise TypeError("the first argument is a directory; give the settings as settings={…}")
    return Serving(_in_process(directory, settings or {}, log_level, _secured(tls=tls, users=users)))


def memory_broker(
    settings: Mapping[str, str] = FOR_TESTS, *, tls: bool = False, users: Mapping[str, str] | None = None
) -> Serving:
    """A broker on a thread of this process that serves from memory, ready at once; stopped at the end of the block."""
    return Serving(_in_memory(settings, _secured(tls=tls, users=users)))


def _secured(*, tls: bool, users: Mapping[str, str] | None) -> Listening:
    protocol = ("SASL_" if users else "") + ("SSL" if tls else "PLAINTEXT")
    return Listening(protocol, Users(users) if users else None)


@contextmanager
def _in_memory(settings: Mapping[str, str], listening: Listening) -> Iterator[Broker]:
    from pqbroker.fixture.in_process import BrokerThread

    with tempfile.TemporaryDirectory(prefix="pqbroker-") as scratch:
        files, own = _security(Path(scratch), listening)
        with _serving(BrokerThread({**own, **settings}, listening), files, listening.users) as running:
            yield running


@contextmanager
def _in_process(
    directory: Path | str | None, settings: Mapping[str, str], log_level: str, listening: Listening
) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(prefix="pqbroker-") as scratch:
        log_file = Path(scratch, "log")
        log_file.touch()
        data = directory or Path(scratch, "data")
        files, own = _security(Path(scratch), listening)
        process = BrokerProcess(data, {**own, **settings}, log_file, log_level, listening)
        with _serving(process, files, listening.users) as running:
            yield running


def _security(scratch: Path, listening: Listening) -> tuple[ClientFiles | None, Mapping[str, str]]:
    """Return files for clients, and settings of the broker's listener."""
    own = {} if listening.users is None else {"sasl.enabled.mechanisms": ALL_MECHANISMS}
    if not listening.protocol.endswith("SSL"):
        return None, own
    from pqbroker.fixture.certificates import make_certificates

    files, settings = make_certificates(scratch)
    return files, {**own, **settings}


@contextmanager
def _serving(runner: Runner, tls: ClientFiles | None = None, users: Users | None = None) -> Iterator[Broker]:
    try:
        runner.start()
        running = Broker(runner, tls, users)
        running.add_users()
        yield running
    except BaseException:
        runner.kill()
        raise
    runner.stop()


def _end(calls: HttpCalls, number: int) -> None:
    with suppress(BrokerRefusedError):  # it is over
        calls.ask("DELETE", f"/v1/test/faults/{number}")


def _records(calls: HttpCalls, topic: str, partition: int | None) -> Iterator[Record]:
    """Yield the records of a topic that exist now."""
    count = calls.ask("GET", f"/v1/topics/{topic}?limit=1")["partition_count"]
    for index in range(count) if partition is None else (partition,):
        path = f"/v1/topics/{topic}/records?partition={index}"
        page = calls.ask("GET", path)
        while page["records"]:
            yield from (taken(topic, index, shown) for shown in page["records"])
            page = calls.ask("GET", f"{path}&offset={page['next_offset']}")


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))

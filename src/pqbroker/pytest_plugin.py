"""Fixtures for pytest, found by itself once the package is installed; a failed test's report has the broker's log.

    pqbroker_broker     a process for each test, with the settings of `pqbroker_settings`
    pqbroker_memory     a thread for each test, over memory, with the same settings
    pqbroker_session    a process for all tests of a session, one for each worker of xdist
    pqbroker_topic      a new topic of it for each test
"""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest

from pqbroker.testing import FOR_TESTS, Broker, BrokerRefusedError, broker, memory_broker

_LOG_CHARACTERS = 4000
_NAME_CHARACTERS = 100
_SHARED = "pqbroker_session"
_LOG_STARTS = pytest.StashKey[dict[str, int]]()
"""Position in a broker's log at which the test began, by fixture."""


@pytest.fixture
def pqbroker_settings() -> Mapping[str, str]:
    """Settings of the brokers of `pqbroker_broker` and `pqbroker_memory`; override it to change them."""
    return {}


@pytest.fixture(scope="session")
def pqbroker_session_settings() -> Mapping[str, str]:
    """Settings of the broker of `pqbroker_session`; override it to change them."""
    return {}


@pytest.fixture
def pqbroker_broker(tmp_path_factory: pytest.TempPathFactory, pqbroker_settings: Mapping[str, str]) -> Iterator[Broker]:
    """A real broker on free ports with a temporary directory, fresh for each test."""
    with broker(tmp_path_factory.mktemp("pqbroker"), {**FOR_TESTS, **pqbroker_settings}) as running:
        yield running


@pytest.fixture
def pqbroker_memory(pqbroker_settings: Mapping[str, str]) -> Iterator[Broker]:
    """A broker on a thread of this process, on free ports, over memory, fresh for each test."""
    with memory_broker({**FOR_TESTS, **pqbroker_settings}) as running:
        yield running


@pytest.fixture(scope="session")
def pqbroker_session(
    tmp_path_factory: pytest.TempPathFactory, pqbroker_session_settings: Mapping[str, str]
) -> Iterator[Broker]:
    """One real broker for all tests of this session; each worker of xdist has its own."""
    with broker(tmp_path_factory.mktemp("pqbroker"), {**FOR_TESTS, **pqbroker_session_settings}) as running:
        yield running


@pytest.fixture
def pqbroker_topic(pqbroker_session: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic of one partition in the session's broker, new for each test and deleted behind it."""
    test = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:_NAME_CHARACTERS]
    name = pqbroker_session.create_topic(f"{test}-{uuid.uuid4().hex[:12]}")
    yield name
    if pqbroker_session.running:
        pqbroker_session.delete_topic(name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    item.stash[_LOG_STARTS] = {name: len(found.log) for name, found in _brokers(item) if name == _SHARED}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Faults of one test meet neither the next one nor what ends this one."""
    for name, found in _brokers(item):
        if name == _SHARED and found.running:
            with suppress(BrokerRefusedError):  # it was set to have no door for tests
                found.clear_faults()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if not report.failed:
        return
    starts = item.stash.get(_LOG_STARTS, {})
    for name, found in _brokers(item):
        try:
            log = found.log[starts.get(name, 0) :]
        except FileNotFoundError:  # it ended with its directory, and something else failed after that
            continue
        report.sections.append((f"log of {name}", log[-_LOG_CHARACTERS:] or "nothing"))


def _brokers(item: pytest.Item) -> list[tuple[str, Broker]]:
    """The brokers that a test has, each by the first fixture that gives it."""
    given: dict[str, object] = getattr(item, "funcargs", {})
    found = {id(value): (name, value) for name, value in reversed(given.items()) if isinstance(value, Broker)}
    return [*reversed(found.values())]

"""For all tests: how the workers of `./test` divide them, how deep property tests go, how Java starts, signals."""

import gc
import os
from collections.abc import Generator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support import depth, forked_brokers, forked_workers
from tests.support.kafka.jars import QUICK_START
from tests.support.signals import restore_signals

restore_signals()
depth.register_profiles()
forked_brokers.launch_forks()
forked_workers.fork_workers()
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(QUICK_START))
os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(QUICK_START))
os.environ.setdefault("PQBROKER_PROFILE", "none")  # the profiles of who runs the tests do not count

_WHOLE = (
    "tests/spark/", "tests/house/", "tests/cli/", "tests/compat/", "tests/fixture/", "tests/console/",
    "tests/http_client/",
)  # fmt: skip
"""Suites that one worker runs whole and first: their tests share what is dear, as JVMs, brokers, a fresh clone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The suites that take longest come first, so that the workers end together."""

    def rank(item: pytest.Item) -> int:
        return next((place for place, suite in enumerate(_WHOLE) if item.nodeid.startswith(suite)), len(_WHOLE))

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Tests are collected without Python's garbage collector, which would walk all of them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of collected tests live to the end: the collector need not walk them while a test measures time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """What is frozen counts as leaked at the interpreter's end, and libraries say so."""
    gc.unfreeze()


class Suites(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker a file at a time, or one of the suites that stay whole."""

    def _split_scope(self, nodeid: str) -> str:
        return next((suite for suite in _WHOLE if nodeid.startswith(suite)), nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Suites:
    """Called by pytest-xdist when there are workers."""
    return Suites(config, log)

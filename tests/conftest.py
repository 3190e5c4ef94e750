"""For all tests: what the workers of `./test` share out, and no deadlines, for a busy machine is no defect."""

import gc

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

_WHOLE = ("tests/spark/", "tests/house/")
"""Suites that one worker runs whole, for what their tests share is dear: a JVM, a fresh clone. They begin first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The suites that take longest come first, so that the workers end together."""
    items.sort(key=lambda item: not item.nodeid.startswith(_WHOLE))


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

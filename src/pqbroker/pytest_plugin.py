"""The fixture `pqbroker_broker` for pytest, found by itself once the package is installed."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pqbroker.testing import Broker, broker


@pytest.fixture
def pqbroker_settings() -> Mapping[str, str]:
    """Settings of the broker that `pqbroker_broker` gives; override it to change them."""
    return {}


@pytest.fixture
def pqbroker_broker(tmp_path: Path, pqbroker_settings: Mapping[str, str]) -> Iterator[Broker]:
    """A real broker on free ports with its data under `tmp_path`, fresh for each test."""
    with broker(tmp_path / "data", pqbroker_settings) as running:
        yield running

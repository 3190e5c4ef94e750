"""Fifty members of one group come and go, for 5 s or $PQBROKER_TESTS_CHURN_SECONDS.

The minute: `python -m tests.faults.churn --seconds 60`.
"""

import asyncio
import os
import random

import pytest

from pqbroker.testing import broker
from tests.faults.churn import SETTINGS, run

SECONDS = float(os.environ.get("PQBROKER_TESTS_CHURN_SECONDS", "5"))


@pytest.mark.timeout(240 + SECONDS)
def test_a_partition_has_one_owner_in_every_generation_while_members_come_and_go() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with broker(settings=SETTINGS) as node:
        book = asyncio.run(run(node.kafka, seconds=SECONDS, seed=seed))
    assert book.is_worth

"""Fifty members of one group of the consumer protocol come and go, for 4 s or $PQBROKER_TESTS_CHURN_SECONDS; a smaller
group moves to the classic protocol and back meanwhile.

Two minutes: `python -m tests.faults.consumer_churn [--migrates] --seconds 120`.
"""

import asyncio
import os
import random

import pytest

from pqbroker.testing import broker
from tests.faults.consumer_churn import SETTINGS, run

SECONDS = float(os.environ.get("PQBROKER_TESTS_CHURN_SECONDS", "4"))
FEW = 6


@pytest.mark.timeout(300 + SECONDS)
def test_a_partition_has_one_owner_in_every_epoch_and_each_record_is_read() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with broker(settings=SETTINGS) as node:
        book = asyncio.run(run(node.kafka, seconds=SECONDS, seed=seed))
    assert book.is_worth(moves=False)


@pytest.mark.timeout(300 + SECONDS)
def test_a_partition_has_one_owner_while_the_group_moves_between_the_protocols_and_back() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with broker(settings=SETTINGS) as node:
        book = asyncio.run(run(node.kafka, seconds=SECONDS, seed=seed, members=FEW, migrates=True))
    assert book.is_worth(moves=True)

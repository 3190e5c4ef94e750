"""`kill -9` of every job within its work, and of the broker under it: afterwards each row is there once.

One process runs the jobs, and is killed once: a Spark of its own for each would take minutes. `land` of one topic has
`test_land_kills.py`. `python -m tests.spark.kills` plays many rounds, of one job or of all.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pqbroker.testing import broker
from tests.spark.kills.cases import CASES
from tests.spark.kills.rounds import play
from tests.support.serving import is_ours

pytestmark = pytest.mark.skipif(not is_ours(), reason="only our broker is killed and started again")
SEED = 1


def test_every_row_is_there_once_over_kills_of_the_jobs_and_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    with broker(tmp_path / "data") as node:
        play(spark, node, tmp_path / "jobs", [name for name in CASES if name != "land"], SEED)

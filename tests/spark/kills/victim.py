"""A process that runs jobs side by side in one Spark until it is killed: `victim ADDRESS DIRECTORY JOB…`.

A job that fails, as it may when its broker is killed, is started again. The process ends when a job does.
"""

import sys
import threading
import time
from pathlib import Path

from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.session import start_session
from tests.spark.kills.cases import CASES, Site

TASKS_MAX = 12
"""Tasks of jobs that are limited in rate wait most of their time."""
OPTIONS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}
_BEFORE_A_RESTART_S = 0.5


def main() -> None:
    """Run the jobs named."""
    site = Site(sys.argv[1], Path(sys.argv[2]))
    spark = start_session("killed jobs", master=f"local[{TASKS_MAX}]", options=OPTIONS)
    spark.sparkContext.setLogLevel("ERROR")
    never = threading.Event()

    def work(name: str) -> None:
        while True:
            try:
                CASES[name]().run(spark, site, never, once=False)
                return
            except JobError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                time.sleep(_BEFORE_A_RESTART_S)

    threads = [threading.Thread(target=work, args=(name,)) for name in sys.argv[3:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()

"""Several landings in one Spark session: each topic in a thread and a directory of its own."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

from pyspark.sql import SparkSession

from pqbroker.pipeline.admin import Admin, AdminError
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.lakes.land import land
from pqbroker.pipeline.lakes.landing import Landing, matching

_LOOK_EVERY_S = 0.5
_TOPICS_MAX = 50
"""Streaming queries that one Spark on one machine runs side by side."""


def land_all(
    spark: SparkSession, landings: Sequence[Landing], say: Callable[[str], None], stopping: threading.Event
) -> None:
    """Land all, patterns by the topics that exist now. The first that fails stops the others. JobError."""
    named = _named(spark, landings)
    over = threading.Event()
    with ThreadPoolExecutor(len(named)) as pool:
        jobs = [pool.submit(land, spark, each, _prefixed(each.topic, say), over) for each in named]
        while wait(jobs, _LOOK_EVERY_S).not_done:
            if stopping.is_set() or any(job.done() and job.exception() for job in jobs):
                over.set()
    for job in jobs:
        job.result()


def _prefixed(topic: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda line: say(f"{topic}  {line}")


def _named(spark: SparkSession, landings: Sequence[Landing]) -> list[Landing]:
    """A landing for each topic. Patterns leave out dead letters."""
    first = landings[0]
    try:
        with Admin(spark, first.broker) as admin:
            topics = admin.topics()
    except AdminError as error:
        raise JobError(f"the broker at {first.broker}: {error}") from error
    named: dict[str, Landing] = {}
    for landing in landings:
        found = matching(landing.topic, topics)
        if not found:
            raise JobError(f"no topic at {first.broker} is named like {landing.topic}")
        for topic in found:
            group = f"land-{topic}" if landing.group == f"land-{landing.topic}" else landing.group
            figures = landing.figures and landing.figures.with_stem(f"{landing.figures.stem}-{topic}")
            directory = landing.directory / topic
            named[topic] = replace(landing, topic=topic, directory=directory, group=group, figures=figures)
    if len(named) > _TOPICS_MAX:
        raise JobError(f"{len(named)} topics are named; at most {_TOPICS_MAX} land in one session")
    return list(named.values())

"""Needs of the services of topics: of the node, and of their callers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from pqbroker.broker.ground.access import Guarded, Principal
from pqbroker.broker.ground.openings import Openings
from pqbroker.broker.ground.other_nodes import OtherNodes
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.services.commits.commits import Commits
from pqbroker.broker.services.leaders import Leaders
from pqbroker.conf.broker import BrokerSettings
from pqbroker.pq.serving.topic import Topic
from pqbroker.pq.serving.topics import Topics
from pqbroker.storage.bundles.hive import Hive
from pqbroker.storage.tablets.scheme import Scheme

NamedTopics = Mapping[str, Topic | Exception]
"""Topics that were created together, by name, or why one was not."""


class TopicsOpening(Protocol):
    """One opening of the system cell."""

    @property
    def topics(self) -> Topics: ...
    @property
    def scheme(self) -> Scheme: ...
    @property
    def hive(self) -> Hive: ...
    @property
    def commits(self) -> Commits: ...


class TopicsNode(Guarded, Protocol):
    """The node whose topics are served."""

    @property
    def cell(self) -> Openings[TopicsOpening]: ...
    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def clock(self) -> Callable[[], int]:
        """Milliseconds since 1970."""

    @property
    def leaders(self) -> Leaders: ...
    @property
    def others(self) -> Callable[[], OtherNodes | None]:
        """Return what gives the other nodes of a broker with several, at the first one; None elsewhere."""

    @property
    def creations(self) -> dict[str, asyncio.Task[NamedTopics]]:
        """Creations under way of topics that somebody named, by each name."""


class Caller(Protocol):
    """A request over Kafka's protocol (`Context`) or HTTP (`Call`), or another door (`DirectCaller`)."""

    @property
    def node(self) -> TopicsNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...

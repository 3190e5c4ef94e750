"""Needs of the services of configs: of the node, and of their callers."""

from collections.abc import Callable
from typing import Protocol

from pqbroker.broker.ground.access import Principal
from pqbroker.broker.ground.listeners import Listener
from pqbroker.broker.ground.openings import Openings
from pqbroker.broker.services.configs.node_settings import NodeSettings
from pqbroker.broker.services.topics.callers import TopicsNode, TopicsOpening
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.engine import PoolStats


class ConfigsOpening(TopicsOpening, Protocol):
    """One opening of the system cell, with what nodes are set to."""

    @property
    def settings(self) -> NodeSettings: ...


class LocatedNode(TopicsNode, Protocol):
    """A node that says where it listens and keeps its records."""

    @property
    def listeners(self) -> tuple[Listener, ...]: ...
    @property
    def http(self) -> Callable[[], Listener | None]:
        """Return the HTTP address, with the port that is bound; None: there is none."""

    @property
    def pools(self) -> Callable[[], tuple[PoolStats, ...]]:
        """Space of the pools of the cell."""


class ConfigsNode(LocatedNode, Protocol):
    """The node whose configs are changed."""

    @property
    def cell(self) -> Openings[ConfigsOpening]: ...
    async def check_settings(self, settings: BrokerSettings) -> None:
        """Check settings that are not in force yet: ConfigError if a part of the node would not take them."""

    async def take_settings(self) -> None:
        """Have the parts of the node that hold something made of settings take those in force."""


class ConfigsCaller(Protocol):
    """A caller that changes configs."""

    @property
    def node(self) -> ConfigsNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...

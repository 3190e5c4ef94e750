"""Needs of the services of features: of the node, and of their callers."""

from typing import Protocol

from pqbroker.broker.ground.access import Guarded, Principal
from pqbroker.broker.ground.openings import Openings
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.tablets.scheme import Scheme


class FeaturesOpening(Protocol):
    """One opening of the system cell."""

    @property
    def scheme(self) -> Scheme: ...


class FeaturesNode(Guarded, Protocol):
    """The node whose features are set."""

    @property
    def cell(self) -> Openings[FeaturesOpening]: ...
    @property
    def settings(self) -> BrokerSettings: ...


class FeaturesCaller(Protocol):
    """A caller that sets features."""

    @property
    def node(self) -> FeaturesNode: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...

"""Needs of the services of quotas: of the node."""

from typing import Protocol

from pqbroker.broker.ground.openings import Openings
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.services.quotas.client_quotas import ClientQuotas
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.tablets.scheme import Scheme


class QuotasOpening(Protocol):
    """One opening of the system cell."""

    @property
    def scheme(self) -> Scheme: ...


class QuotasNode(Protocol):
    """The node whose quotas are shown and changed."""

    @property
    def cell(self) -> Openings[QuotasOpening]: ...
    @property
    def quotas(self) -> ClientQuotas: ...
    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def turns(self) -> Turns: ...

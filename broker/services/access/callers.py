"""Needs of the services of access rules: of the node."""

from typing import Protocol

from pqbroker.broker.ground.openings import Openings
from pqbroker.broker.ground.turns import Turns
from pqbroker.broker.services.access.rule_access import RuleAccess
from pqbroker.conf.broker import BrokerSettings
from pqbroker.storage.tablets.scheme import Scheme


class AccessOpening(Protocol):
    """One opening of the system cell."""

    @property
    def scheme(self) -> Scheme: ...


class AccessNode(Protocol):
    """The node whose rules are shown and changed."""

    @property
    def cell(self) -> Openings[AccessOpening]: ...
    @property
    def rules(self) -> RuleAccess | None: ...
    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def turns(self) -> Turns: ...

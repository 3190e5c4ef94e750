"""Times of groups of KIP-848 that are in force, as the node and each group are set now."""

from pqbroker.broker.services.configs.named_resources import GROUPS
from pqbroker.broker.services.configs.node_settings import NodeSettings
from pqbroker.conf.group_times import GroupTimes, group_times
from pqbroker.storage.tablets.scheme import Scheme


class TimesInForce:
    """Times of every group. Most groups set nothing: they have the node's, which are kept until its settings change."""

    def __init__(self, scheme: Scheme, settings: NodeSettings) -> None:
        self._scheme = scheme
        self._settings = settings
        self._read_from = settings.in_force
        self._of_node = group_times({}, settings.in_force)

    def of(self, group_id: str) -> GroupTimes:
        """Return the times of a group."""
        in_force = self._settings.in_force
        if in_force is not self._read_from:
            self._read_from, self._of_node = in_force, group_times({}, in_force)
        texts = self._scheme.named_settings(GROUPS.name).get(group_id)
        return group_times(texts, in_force) if texts else self._of_node

"""Levels of features: those that this broker supports, and those that are finalized, durably in the scheme.

    upgrade type    above the level now    the same    below it
    upgrade         set                    nothing     refused
    downgrade       refused                nothing     set; of metadata.version refused

A feature that was never set is finalized at the greatest level that is supported; one at level 0 is not finalized.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from pqbroker.broker.ground.access import AclOperation, check_access
from pqbroker.broker.services.features.callers import FeaturesCaller, FeaturesNode
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.tablets.scheme import Scheme

GROUP_VERSION: Final = "group.version"
"""Kafka's feature whose level 1 is the group protocol of KIP-848."""
METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"
"""Kafka's feature whose level 2 is the protocol of KIP-890."""


class Feature(NamedTuple):
    """The least and the greatest level of a feature that this broker supports."""

    least: int
    greatest: int


FEATURES: Final[Mapping[str, Feature]] = {
    GROUP_VERSION: Feature(0, 1), METADATA_VERSION: Feature(7, 30), TRANSACTION_VERSION: Feature(0, 2),
}  # fmt: skip
"""Features by name. The range of metadata.version, of which nothing depends here, is that of Apache Kafka 4.3."""
UPDATES_MAX: Final = 100
"""Features that one request names, at most: more than there are."""

_REFUSED: Final = "The update failed for all features since the following feature had an error: "
_TYPE_MISSING: Final = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)
_LOSES_METADATA: Final = (
    "Refusing to perform the requested downgrade because it might delete metadata information."
)
_UNSAFE: Final = "Unsafe metadata downgrade is not supported in this version."


class UpgradeType(IntEnum):
    """Kafka's directions of an update."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature and the level that it is to have. `upgrade_type`: one of Kafka's, or what a client gave instead."""

    name: str
    level: int
    upgrade_type: int


def finalized_levels(scheme: Scheme) -> dict[str, int]:
    """Return the levels that the cluster goes by; features at level 0 are left out."""
    return {name: level for name, level in _levels(scheme.feature_levels).items() if level}


def level_of(node: FeaturesNode, name: str) -> int:
    """Return the level of a feature now."""
    return _levels(node.cell.current.scheme.feature_levels)[name]


async def update_levels(caller: FeaturesCaller, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
    """Set levels of features, all or none; durable, and in force, when it returns. Of two updates of one feature the
    last one counts. KafkaError CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, INVALID_UPDATE_VERSION; CommitRefused,
    ShardLost."""
    check_access(caller, AclOperation.ALTER)
    if len(updates) > UPDATES_MAX:
        text = f"{len(updates)} updates of features; one request names at most {UPDATES_MAX}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    wanted = {update.name: update for update in updates}
    scheme = caller.node.cell.current.scheme

    def plan(stored: Mapping[str, int]) -> Mapping[str, int]:
        levels = _levels(stored)
        for update in wanted.values():
            if (wrong := _why_invalid(levels, update, caller.node.settings.node_id)) is not None:
                raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"{_REFUSED}{wrong}")
        return {update.name: update.level for update in wanted.values() if levels[update.name] != update.level}

    if plan(scheme.feature_levels) and not validate_only:
        await scheme.set_feature_levels(plan)


def _levels(stored: Mapping[str, int]) -> dict[str, int]:
    """Return the level of each feature; one that a version with other ranges has set is within ours."""
    return {
        name: min(max(stored.get(name, feature.greatest), feature.least), feature.greatest)
        for name, feature in FEATURES.items()
    }


def _why_invalid(levels: Mapping[str, int], update: FeatureUpdate, node_id: int) -> str | None:
    """Return why a feature cannot be set so, in Kafka's words; None: it can."""
    name, level, upgrade_type = update
    known = FEATURES.get(name)
    now = levels.get(name, 0)
    if upgrade_type not in tuple(UpgradeType):
        why = "The controller does not support the given upgrade type."
    elif level < 0:
        why = "A feature version cannot be less than 0."
    elif known is None:
        why = f"Local controller {node_id} does not support this feature." if level else f"Feature {name} not found."
    elif not known.least <= level <= known.greatest:
        why = f"Local controller {node_id} only supports versions {known.least}-{known.greatest}"
    elif level < now and upgrade_type == UpgradeType.UPGRADE:
        why = _TYPE_MISSING
    elif level > now and upgrade_type != UpgradeType.UPGRADE:
        why = "Can't downgrade to a newer version."
    elif level < now and name == METADATA_VERSION:
        cause = _LOSES_METADATA if upgrade_type == UpgradeType.SAFE_DOWNGRADE else _UNSAFE
        return f"Unsupported metadata.version downgrade from {now} to {level}. {cause}"
    else:
        return None
    return f"Invalid update version {level} for feature {name}. {why}"

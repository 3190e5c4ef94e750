"""Directories of the tree: the beginnings of names, as //shop of shop.orders. One may have a bundle, which topics and
tables that are made below it have unless another one is given for them. Kept in the scheme by name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pqbroker.conf.broker import BrokerSettings
from pqbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from pqbroker.storage.tablets.scheme import Scheme

BUNDLE = "tablet_cell_bundle"
_KIND = "directory"


def directory_names(scheme: "Scheme") -> list[str]:
    """The directories for which something is set, by the names of their topics: shop of //shop."""
    return list(scheme.named_settings(_KIND))


def bundle_of(scheme: "Scheme", name: str) -> str | None:
    """The bundle that a topic, or a directory, of this name has from a directory above it; None: from none."""
    known = scheme.named_settings(_KIND)
    while known and name:
        name = name.rpartition(".")[0]
        found = known.get(name, {}).get(BUNDLE)
        if found is not None:
            return found
    return None


def own_bundle(scheme: "Scheme", name: str) -> str | None:
    """Return the bundle that is set for a directory itself; None: it has that of the one above."""
    return scheme.named_settings(_KIND).get(name, {}).get(BUNDLE)


async def set_bundle(scheme: "Scheme", name: str, bundle: str | None, node: BrokerSettings) -> None:
    """Set the bundle of a directory, or (None) have it be that of the directory above. Durable when it returns.
    KafkaError POLICY_VIOLATION; CommitRefused, ShardLost."""

    def change(stored: Mapping[str, str]) -> Mapping[str, str]:
        if bundle is None:
            return {}
        if not stored and len(scheme.named_settings(_KIND)) >= node.config_resources_max:
            text = f"pqbroker.config.resources.max = {node.config_resources_max} directories have settings of their own"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{text}; take those of some away, or raise it")
        return {BUNDLE: bundle}

    await scheme.change_named_settings(_KIND, name, change)

"""Kinds of tablets by type: what their channels hold, which version of the stored form is written, whose they are."""

from collections.abc import Mapping
from dataclasses import dataclass

from pqbroker.storage.kv.rows import KV_FORMAT
from pqbroker.storage.tablets.base_tablet import LOG_FORMAT
from pqbroker.storage.tablets.tablet import TabletType


@dataclass(frozen=True, slots=True)
class TabletKind:
    """Facts common to all tablets of one type."""

    name: str
    """Name in metrics, profiles of storage and texts for people."""
    format: int
    """Version of what it stores: of rows for a KV tablet, else of log records."""
    keyless: str
    """Reason why such a tablet has no keys to show; empty for a KV tablet."""
    belongs_to_object: bool
    """True if it lives and dies with an object of the scheme, such as a topic; False: it is the broker's own."""
    channels: tuple[str, ...] = ("log", "snapshots", "data")
    """Content of each channel of a new tablet, by number."""

    @property
    def is_kv(self) -> bool:
        """Return True for a KV tablet; any other keeps row sets in a log."""
        return not self.keyless


def _of_row_sets(name: str) -> TabletKind:
    return TabletKind(name, LOG_FORMAT, "keeps row sets in log blobs, no keys", belongs_to_object=False)


_SORTED_CHANNELS = ("log", "snapshots", "data", "chunks")
TABLET_KINDS: Mapping[TabletType, TabletKind] = {
    TabletType.SCHEME: _of_row_sets("scheme"),
    TabletType.PERSQUEUE: TabletKind("persqueue", KV_FORMAT, "", belongs_to_object=True),
    TabletType.COORDINATOR: _of_row_sets("coordinator"),
    TabletType.HIVE: _of_row_sets("hive"),
    TabletType.SORTED: TabletKind("sorted", KV_FORMAT, "", belongs_to_object=True, channels=_SORTED_CHANNELS),
}

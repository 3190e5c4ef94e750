"""Pools where the channels of a cell's new tablets begin, and limits of channels, by what the node is set to."""

from pqbroker.conf.storage import ChannelProfile, StorageProfile
from pqbroker.storage.blobs.blob_storage import BlobStorage
from pqbroker.storage.blobs.channel_history import ChannelHistory
from pqbroker.storage.blobs.channel_limits import ChannelLimits
from pqbroker.storage.engine import Shard
from pqbroker.storage.ids import TabletId
from pqbroker.storage.tablets.tablet import TabletRecord, TabletType
from pqbroker.storage.tablets.tablet_kinds import TABLET_KINDS


def begin_channels(type_: TabletType) -> tuple[ChannelHistory, ...]:
    """Return the channels of a new tablet of a cell without a profile: all in its first pool."""
    return tuple(ChannelHistory(((1, 0),)) for _ in TABLET_KINDS[type_].channels)


class ChannelProfiles:
    """The storage profile over one open cell."""

    def __init__(self, profile: StorageProfile, shard: Shard, blobs: BlobStorage) -> None:
        self._profile = profile
        self._blobs = blobs
        is_limited = any(channel.is_limited for channel in profile.values())
        self.limits = ChannelLimits(shard.lost) if is_limited else None
        """None: no channel of the cell is limited."""

    def new_channels(self, type_: TabletType) -> tuple[ChannelHistory, ...]:
        """Return the channels of a new tablet, each in its pool."""
        kind = TABLET_KINDS[type_]
        profiles = [self._profile.get((kind.name, channel), ChannelProfile()) for channel in range(len(kind.channels))]
        return tuple(ChannelHistory(((1, self._blobs.pools.index(profile.pool)),)) for profile in profiles)

    async def limit(self, record: TabletRecord) -> None:
        """Have a tablet's channels keep to their limits from now on."""
        for channel in range(len(record.channels) if self.limits is not None else 0):
            profile = self._profile.get((TABLET_KINDS[record.type].name, channel))
            if self.limits is not None and profile is not None and profile.is_limited:
                used = await self._blobs.used_bytes(record.tablet_id, channel) if profile.space else 0
                self.limits.limit(record.tablet_id, channel, profile, used)

    def forget(self, tablet_id: TabletId) -> None:
        """The tablet is gone."""
        if self.limits is not None:
            self.limits.forget(tablet_id)

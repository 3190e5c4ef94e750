"""Count of the partitions that all topics of a node have together, and its limit."""


class TooManyPartitions(Exception):
    """A node has as many partitions as it may have."""


class PartitionCount:
    """Counts partitions of topics that the scheme has; only growth is refused, never what exists."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known = 0

    def check_room(self, count: int, most: int) -> None:
        """Check that there may be `count` more: TooManyPartitions."""
        if count > 0 and self.known + count > most:
            raise TooManyPartitions(
                f"{count} more partitions are too many: this broker has {self.known} of at most {most}; "
                "delete topics, or raise pqbroker.partitions.max"
            )

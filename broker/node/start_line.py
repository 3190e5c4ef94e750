"""The line that a node logs when it has started: its version, and what it found."""

import platform

from pqbroker import __version__
from pqbroker.broker.node.parts import Node

_MIB = 1 << 20


def describe_start(node: Node, data: str, seconds: float) -> str:
    """`seconds`: how long it took to open the data and to listen."""
    opened = node.cell.current
    topics = [topic for name in opened.topics.names() if (topic := opened.topics.get(name)) is not None]
    partitions = [partition for topic in topics for partition in topic.partitions]
    size = sum(partition.size_bytes for partition in partitions)
    records = sum(partition.end_offset - partition.start_offset for partition in partitions)
    damages = len(opened.cell.quarantine.damages)
    return (
        f"pqbroker {__version__} on Python {platform.python_version()} opened {data} in {seconds:.2f} s: cell "
        f"{opened.cell.name}, generation {opened.cell.generation}, {len(topics)} topics, {len(partitions)} partitions, "
        f"{records} records in {size / _MIB:.1f} MiB"
        + (f", {damages} places unreadable" if damages else "")
        + (f"; {opened.cell.reading_only}" if opened.cell.reading_only else "")
    )

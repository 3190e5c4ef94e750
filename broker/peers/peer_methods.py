"""Requests and notes of the peer link, each by the byte that it begins with, and the heads of those that have one."""

import json
import struct
from enum import IntEnum
from typing import Any, Final

from pqbroker.broker.peers.peer_frames import LinkBroken

WORK_GOES_ON: Final = {"goes_on": True}
"""Answer to `PeerMethod.TABLETS` while the work is not done: it is asked for again."""
_HEAD_LENGTH: Final = struct.Struct(">BI")


class PeerMethod(IntEnum):
    """Methods by number; the number of one that is gone is not given again."""

    ORDERS = 1
    """A node asks its parent process what it is to serve."""
    READY = 2
    """A node notes to its parent that it serves."""
    KAFKA = 3
    """A request of a Kafka client that another node is to answer."""
    FOLLOW = 4
    """A node asks for the scheme and the hive from the numbers on that it has."""
    PORTION = 5
    """A note with a portion of a snapshot of the scheme or the hive."""
    CHANGE = 6
    """A note with a change of the scheme or the hive."""
    CONFIRM = 7
    """A node asks for the numbers of the last changes, and says which tablets it runs."""
    CELL_READY = 8
    """A node has opened a new cell, which the hive is to note."""
    RUNNING = 9
    """A note of the first node with the tablets that others than the receiver run, by cell."""
    STOPPING = 10
    """The parent process says to the first node that all nodes stop: their cells stay where they are."""
    EMPTY_NODE = 11
    """The parent process has the first node move all cells away from a node that it restarts."""
    FILL_NODE = 14
    """The parent process has the first node give a node that was restarted its cells again."""
    RESTART_NODES = 15
    """The first node has its parent process restart all nodes one by one."""
    RESTART_STATE = 16
    """The first node asks its parent process how far that is."""
    SAMPLES = 12
    """The first node asks another one for the samples of its metrics."""
    WEB = 13
    """The first node has another one serve a call of HTTP, or reads a stream of one. The head has the number of the
    scheme's last change before it, as that of `TABLETS` has."""
    COPY_OFFSETS = 20
    """The first node asks for the offsets of groups in some tablets."""
    COMMIT_OFFSETS = 21
    """The first node has offsets of a group stored in partitions of one cell."""
    END_TRANSACTION = 22
    """The first node has a Kafka transaction ended in a partition."""
    ADMIT = 23
    """A node asks the coordinator whether a batch belongs to its producer's transaction."""
    TIMESTAMPS = 24
    """A node asks for a block of commit timestamps, greater than one that it has seen."""
    PREPARE_ROWS = 40
    """The first node has another one prepare rows of a commit."""
    END_ROWS = 41
    """A node has prepared rows written or dropped wherever they are."""
    ASK_HOME = 42
    """A node asks the home of prepared rows for their decision, wherever it is."""
    TABLETS = 50
    """The first node has another one do some work on tablets of tables that it runs."""
    SESSIONS = 51
    """The first node asks another one about sessions of tables whose tablets it runs, or has it change them, or rows
    that are staged for them. The head begins as that of `TABLETS`."""
    STATE = 30
    """A note of a node with what is wrong with it, and its figures."""
    ENDS = 31
    """A note of a node with the ends of partitions in which groups have offsets."""
    BACKUP = 32
    """The first node asks another one for a step of a backup of its cells."""


def encode_peer_call(method: PeerMethod, head: Any, body: bytes | memoryview = b"") -> bytes:
    """Return the payload of a request or note; `head`: anything that JSON has."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((_HEAD_LENGTH.pack(method, len(text)), text, body))


def decode_peer_call(payload: bytes) -> tuple[PeerMethod, Any, memoryview]:
    """Return method, head and body of a payload. LinkBroken for one that this version does not know."""
    try:
        number, length = _HEAD_LENGTH.unpack_from(payload)
        method = PeerMethod(number)
        end = _HEAD_LENGTH.size + length
        if end > len(payload):
            raise LinkBroken(f"a head says that it has {length} bytes, and the payload has {len(payload)}")
        return method, json.loads(payload[_HEAD_LENGTH.size : end]), memoryview(payload)[end:]
    except (struct.error, ValueError, RecursionError) as bad:
        raise LinkBroken(f"a payload of {len(payload)} bytes is none that this version knows: {bad}") from None

"""Leader of a partition and its address, as Produce and Fetch answer a client that asked the wrong node (KIP-951)."""

from pqbroker.protocol.schema import INT32, STRING, field, struct


@struct
class LeaderIdAndEpoch:
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


@struct
class NodeEndpoint:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)

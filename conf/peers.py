"""Settings of the link between the nodes of one broker, and of who watches them. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

MIB = 1 << 20
NODES_MAX = 32
"""Nodes of one broker at most."""

PEER_FRAME_BYTES_MAX = setting(
    "pqbroker.peer.frame.bytes.max", Kind.INT, 128 * MIB,
    "Bytes of one frame between two nodes of a broker at most; as many may wait for a node that does not read, and be "
    "of requests being served. A longer request or answer is refused; a node that does not read is disconnected and "
    "connects again.",
    low=65_536, high=1 << 30,
)  # fmt: skip
PEER_REQUEST_TIMEOUT_MS = setting(
    "pqbroker.peer.request.timeout.ms", Kind.INT, 60_000,
    "Time that a request to another node of the broker may take; then the client's connection closes.", low=100,
)  # fmt: skip
NODE_SILENCE_MS = setting(
    "pqbroker.node.silence.ms", Kind.INT, 3_000,
    "Time without a message from a node after which a broker with several kills it and starts it again. A node that "
    "hears nothing from the first one for this time stops answering.",
    low=1_000, high=600_000,
)  # fmt: skip
NODE_RETURN_MS = setting(
    "pqbroker.node.return.ms", Kind.INT, 5_000,
    "Time that a node of a broker with several must serve after it was gone, before its cells are moved back to it, "
    "one after the other.",
    high=86_400_000,
)  # fmt: skip

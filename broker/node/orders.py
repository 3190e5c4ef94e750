"""Orders of a parent process to one of its nodes: everything that it is to serve, as it goes over the link between
them. Nothing of it stands in an argument or in the environment of a process, where others could read it.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pqbroker.broker.ground.listeners import Listener
from pqbroker.broker.node.first_user import FirstUser
from pqbroker.conf.addresses import Address
from pqbroker.security.protocols import SecurityProtocol


@dataclass(frozen=True, slots=True)
class Orders:
    """Orders for the node of number `node` of `nodes`. `http` is None for all but the first."""

    node: int
    nodes: int
    texts: Mapping[str, str]
    """Settings that were given, by name."""
    kafka: tuple[Listener, ...]
    http: Listener | None
    data: str
    log_level: str
    door: str
    """Path of the first node's Unix socket."""
    secret: bytes = field(repr=False)
    """Secret that all nodes of this broker know."""
    first_user: FirstUser | None = None

    def for_node(self, node: int) -> "Orders":
        """Return the same orders for another node."""
        kafka = tuple(replace(listener, node=node) for listener in self.kafka)
        return replace(self, node=node, kafka=kafka, http=self.http if node == 1 else None)

    def encode(self) -> Any:
        """Return the orders as JSON has them."""
        user = self.first_user
        return {
            "node": self.node, "nodes": self.nodes, "texts": dict(self.texts), "data": self.data,
            "kafka": [_encode_listener(one) for one in self.kafka],
            "http": None if self.http is None else _encode_listener(self.http),
            "log_level": self.log_level, "door": self.door, "secret": base64.b64encode(self.secret).decode(),
            "first_user": None if user is None else [user.name, user.password],
        }  # fmt: skip

    @classmethod
    def decode(cls, told: Any) -> "Orders":
        """Read what `encode` returned, in a process of the same version."""
        user, http = told["first_user"], told["http"]
        return cls(
            told["node"], told["nodes"], told["texts"], tuple(map(_decode_listener, told["kafka"])),
            None if http is None else _decode_listener(http), told["data"], told["log_level"], told["door"],
            base64.b64decode(told["secret"]), None if user is None else FirstUser(*user),
        )  # fmt: skip


def _encode_listener(listener: Listener) -> Any:
    return [listener.name, listener.address.host, listener.address.port, listener.protocol.value, listener.node]


def _decode_listener(told: Any) -> Listener:
    name, host, port, protocol, node = told
    return Listener(name, Address(host, port), protocol=SecurityProtocol(protocol), node=node)

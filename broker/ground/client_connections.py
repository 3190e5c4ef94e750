"""Connections of Kafka clients, as they are shown."""

from typing import NamedTuple

from pqbroker.conf.addresses import Address


class ConnectionFacts(NamedTuple):
    """Known facts of one connection and the client behind it."""

    client_id: str | None
    address: Address
    listener: str
    principal: str
    apis: int
    """API keys that it has used, each a bit."""
    bytes_in: int
    bytes_out: int
    idle_s: float
    """Time since its last request."""
    requests: int
    """Requests of it that are not answered."""
    begun: int | None = None
    """Requests that it has begun since costs are measured; None: they are not."""
    busy_s: float | None = None
    """Processor time of the loop that these took as they began."""

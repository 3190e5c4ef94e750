"""The system's limit of open files of this process: raised as far as it goes, and the connections' part of it.

Each connection is a file. A broker that runs out of them could not open its own either, and would lose its cell: the
last ones are kept from connections.
"""

import logging
import resource

from pqbroker.conf.broker import BrokerSettings

log = logging.getLogger(__name__)

_KEPT = 256
"""File descriptors kept for RocksDB's tables (128), segments written and read, listeners."""
_MOST = 1 << 20
"""Limit asked of a system that has none."""


def raise_limit() -> None:
    """Raise the limit of this process to what it may have: shells and services start with 1024, for select's sake."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as refusal:
            log.warning("the limit of open files stays at %d: %s", soft, refusal)


def connections_max(settings: BrokerSettings) -> int:
    """Return the most Kafka connections allowed: max.connections, or what the limit leaves, at least half of it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return settings.max_connections
    sent = 2 * settings.sent_files_max  # each with its connection's socket a second time
    left = limit - _KEPT - sent - settings.http_connections_max - http_arrivals_max(settings)
    return min(settings.max_connections, max(left, limit // 2))


def http_arrivals_max(settings: BrokerSettings) -> int:
    """HTTP connections without a request that there may be: pqbroker.http.arrivals.max, or an eighth of the limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return settings.http_arrivals_max
    return min(settings.http_arrivals_max, limit // 8)


def tell_limit(settings: BrokerSettings) -> None:
    """Say so when fewer connections than wanted can be served."""
    allowed = connections_max(settings)
    if allowed < settings.max_connections:
        log.info(
            "%d connections at most, not max.connections=%d: the system's limit of open files is %d (ulimit -n)",
            allowed,
            settings.max_connections,
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )

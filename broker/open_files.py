"""How many files the system lets this process hold open: raised as far as it goes, and what of it is connections'.

Each connection is a file. A broker that runs out of them could not open its own either, and would lose its cell: the
last ones are kept from connections.
"""

import logging
import resource

log = logging.getLogger(__name__)

_KEPT = 256
"""For RocksDB's tables (128), segments written and read, HTTP."""
_MOST = 1 << 20
"""What is asked of a system that has no limit."""


def raise_limit() -> None:
    """Raise the limit of this process to what it may have: shells and services start with 1024, for select's sake."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as refusal:
            log.warning("the limit of open files stays at %d: %s", soft, refusal)


def connections_max(wanted: int, sent_files_max: int) -> int:
    """How many connections there may be: `wanted`, or what the limit leaves, at least half of it.

    `sent_files_max`: files that answers hold open, each with its connection's socket a second time.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(limit - _KEPT - 2 * sent_files_max, limit // 2))


def tell_limit(wanted: int, sent_files_max: int) -> None:
    """Say so when fewer than the wanted connections can be served."""
    allowed = connections_max(wanted, sent_files_max)
    if allowed < wanted:
        log.info(
            "%d connections at most, not max.connections=%d: the system's limit of open files is %d (ulimit -n)",
            allowed,
            wanted,
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )

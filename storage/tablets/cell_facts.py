"""A cell's own facts, which are rows of it: the format, its name, its pools by number, and its mark of the scheme."""

from collections.abc import Sequence
from typing import NamedTuple

from pqbroker.storage.engine import Batch, EngineError, Shard

CELL_FACTS = b"C"
"""First byte of these rows."""
FORMAT_VERSION = 1
FORMAT_KEY = CELL_FACTS + b"format"
NAME_KEY = CELL_FACTS + b"name"
POOLS_KEY = CELL_FACTS + b"pools"
"""Row of the pools' names by number."""
SCHEME_KEY = CELL_FACTS + b"scheme"
"""Row of the mark (`scheme_mark.py`); earlier releases leave it alone."""


class FactRows(NamedTuple):
    """Facts as an opening finds them."""

    pools: tuple[str, ...]
    """Names by number: those known, then the new ones."""
    mark: bytes | None


def put_facts(batch: Batch, name: str, pools: Sequence[str]) -> None:
    batch.put(FORMAT_KEY, bytes((FORMAT_VERSION,)))
    batch.put(NAME_KEY, name.encode())
    batch.put(POOLS_KEY, "\0".join(pools).encode())


async def read_facts(shard: Shard, name: str) -> FactRows:
    """Read the facts. EngineError for a cell that is not ours to open."""
    version, stored_name, stored_pools, mark = await shard.get([FORMAT_KEY, NAME_KEY, POOLS_KEY, SCHEME_KEY])
    if version is not None and version[0] > FORMAT_VERSION:
        raise EngineError(
            f"cell {name} has format {version[0]}, written by a newer version; this one reads up to {FORMAT_VERSION}: "
            "run the version that wrote it"
        )
    if version is not None and version != bytes((FORMAT_VERSION,)):
        raise EngineError(f"the format of cell {name} is damaged: {version.hex()}; restore a copy of the directory")
    if stored_name is not None and stored_name.decode(errors="replace") != name:
        found = stored_name.decode(errors="replace")
        raise EngineError(f"the directory holds cell {found}, not cell {name}: check the path")
    try:
        known = decode_pools(stored_pools)
    except UnicodeDecodeError as bad:
        raise EngineError(f"the pools of cell {name} are damaged: {bad}; restore a copy of the directory") from bad
    missing = [pool for pool in known if pool not in shard.pools]
    if missing:
        raise EngineError(f"cell {name} keeps blobs in pool {', '.join(missing)}, which is not set: add it back")
    return FactRows(known + tuple(pool for pool in shard.pools if pool not in known), mark)


def decode_pools(row: bytes | None) -> tuple[str, ...]:
    """Pool names by number."""
    return tuple(row.decode().split("\0")) if row else ()

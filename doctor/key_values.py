"""Rows of a KV tablet of any type: each must be readable, and the blobs that they name must exist."""

import struct
from collections.abc import Iterable

from pqbroker.doctor.findings import Findings
from pqbroker.doctor.stored_blobs import StoredBlobs, name_of
from pqbroker.storage.kv.rows import Entry

_UNREADABLE = (struct.error, ValueError, IndexError)


def read_entries(rows: Iterable[tuple[bytes, bytes]], where: str, findings: Findings) -> dict[bytes, Entry]:
    """Return the entries by key, in key order; those that are unreadable are damage of `where`."""
    entries: dict[bytes, Entry] = {}
    for key, row in rows:
        try:
            entries[key] = Entry.stored(row)
        except _UNREADABLE as bad:
            findings.damage("kv", f"{where}, key {text_of(key)}", f"its row cannot be read: {bad}")
    findings.count("keys", len(entries))
    return entries


def check_holders(entries: dict[bytes, Entry], where: str, blobs: StoredBlobs, findings: Findings) -> None:
    """Check that every blob that a row names exists, and that only rows that say so share one."""
    owners: dict[bytes, list[bytes]] = {}
    for key, entry in entries.items():
        for blob in entry.blobs():
            owners.setdefault(blob, []).append(key)
            if not blobs.hold(blob):
                findings.damage("kv", f"{where}, key {text_of(key)}", f"blob {name_of(blob)} is not there")
    for held, keys in owners.items():
        unaware = [key for key in keys if not entries[key].is_shared]
        if len(keys) > 1 and unaware:
            told = f"blob {name_of(held)} is held by {len(keys)} rows, of which this one does not know"
            findings.damage("kv", f"{where}, key {text_of(unaware[0])}", told)


def text_of(key: bytes) -> str:
    return key.decode("ascii", "backslashreplace")

"""Stored bytes that this version cannot read: which, why, and what to do. Raised as locally as can be."""

VERSION_CURE = (
    "run the version that wrote them, or restore the directory from a copy; nothing of them was deleted, and "
    "`pqbroker doctor` on the stopped directory names all that is damaged"
)


INDEX_CURE = (
    "restore the directory from a copy; nothing of it was deleted, and `pqbroker doctor` on the stopped directory names"
    " all that is damaged"
)


class StoredUnreadable(Exception):
    """`place` names the bytes, `cause` says what is wrong with them, `cure` what to do about it."""

    def __init__(self, place: str, cause: str, cure: str = VERSION_CURE) -> None:
        super().__init__(f"{place} cannot be read: {cause}; {cure}")
        self.place = place
        self.cause = cause
        self.cure = cure


def check_version(row: bytes | bytearray | memoryview, known: int) -> None:
    """ValueError unless the row begins with the version that is known here."""
    if not row:
        raise ValueError("it is empty")
    if row[0] > known:
        raise ValueError(
            f"it is of version {row[0]}, and this version of pqbroker reads version {known}: it was written by a newer"
            " version, or it is damaged"
        )
    if row[0] != known:
        raise ValueError(f"it is damaged: there is no version {row[0]} of it")

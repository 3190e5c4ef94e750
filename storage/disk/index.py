"""Ordered rows, as the disk engine above them calls them: in the commit thread, and in the threads that read."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol

from pqbroker.storage.disk.commits.index_changes import IndexChanges
from pqbroker.storage.engine import EngineError


class Index(Protocol):
    """The ordered rows below a disk shard. Rounds of changes reach its files later, and in order.

    Its calls block; its errors are not told apart.
    """

    def write(self, changes: IndexChanges, number: int) -> None:
        """Apply a round, whose number is larger than any before. The commit log keeps it until `flushed` says so."""

    def flush(self, *, wait: bool = False) -> None:
        """Begin to write to files all that was applied, if there is room; `wait` until that is done."""

    @property
    def is_flushing(self) -> bool:
        """Return True if a flush has begun whose end `flushed` has not told yet."""

    @property
    def unwritten_bytes(self) -> int:
        """Return how many bytes a flush would write, at most."""

    def tend(self) -> None:
        """Do the work that waits until nothing is committed."""

    def flushed(self) -> int:
        """The number of the last round that is on disk, all before it too."""

    def tell(self, told: str) -> EngineError:
        """Return the EngineError for an error of the other calls, which is a plain Exception of this text."""


class ReadableIndex(Index, Protocol):
    """The index with the calls that reading threads make besides."""

    def compact(self, *, is_on: bool) -> None: ...

    def get(self, keys: list[bytes]) -> list[bytes | None]: ...

    def rows(self, lo: bytes, hi: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]: ...

    def settled_files(self) -> frozenset[str] | None: ...

    def close(self) -> None: ...


class TellsDamage:
    """A context in which the index's errors, which are plain Exceptions, become what `tell` makes of their text."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[str], EngineError]) -> None:
        self._tell = tell

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is Exception and error is not None:
            # Their frames hold iterators, which keep the index open for as long as somebody keeps the error.
            error.__traceback__ = None
            del trace
            raise self._tell(str(error)) from error

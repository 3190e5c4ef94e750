"""Python source under construction: indented lines, the names they refer to, and runs of fixed-size fields."""

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct


class Source:
    """Lines of one function and the globals they refer to."""

    def __init__(self, **names: object) -> None:
        self.names: dict[str, object] = names
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Lines under `opening`, indented."""
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def bind(self, name: str, value: object) -> str:
        """Make `value` known to the function under `name`."""
        assert self.names.setdefault(name, value) == value, f"two meanings of {name}"
        return name

    def packing(self, method: str, codes: str) -> tuple[str, int]:
        """The name of `Struct(codes).pack` or another method of it, and the struct's size in bytes."""
        layout = Struct(">" + codes)
        name = f"{method}_{codes.replace('?', 't')}"
        self.names.setdefault(name, getattr(layout, method))
        return name, layout.size

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

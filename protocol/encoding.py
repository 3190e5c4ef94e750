"""Writes the source of encoders: straight-line code for one message at one version.

In the code written, `parts` gathers small bytes, which are joined whenever record data comes between and at the end.
Each error code sent goes to `on_error`; a message without errors costs no call for that.
The encoder of a long message is the same code with a pause after each element of an array.
"""

import struct
from typing import Any

from pqbroker.protocol.errors import ErrorCode
from pqbroker.protocol.primitives import unsigned_varint
from pqbroker.protocol.schema import BYTES, ERROR_CODE, RECORDS, STRING, Field, Kind, message, wire_fields
from pqbroker.protocol.source import Source

_PARTS_MAX = 512
"""Small parts of a long message that are gathered before they are joined."""


def encoder_source(declared: type, version: int) -> tuple[str, dict[str, object]]:
    """The source of `encode(message, on_error)` for a message at a version, and the globals it needs."""
    return _source(declared, version, pauses=False)


def sliced_encoder_source(declared: type, version: int) -> tuple[str, dict[str, object]]:
    """The source of a generator `encode(message, on_error)`.

    It yields how many bytes were made since the pause before, now and then 0, and returns the buffers.
    """
    return _source(declared, version, pauses=True)


def _source(declared: type, version: int, *, pauses: bool) -> tuple[str, dict[str, object]]:
    writer = _Encoder(version, flexible=version in message(declared).flexible, pauses=pauses)
    return writer.message(declared), writer.source.names


class _Encoder:
    """One function being written. Variables of a struct carry its level of nesting, so that none shadows another."""

    def __init__(self, version: int, *, flexible: bool, pauses: bool) -> None:
        self.source = Source(
            varint=unsigned_varint, join=b"".join, pack=struct.pack, single=(bytes, bytearray, memoryview),
            ignore=_ignore,
        )  # fmt: skip
        self._version = version
        self._flexible = flexible
        self._pauses = pauses
        self._run: list[tuple[str, str]] = []

    def message(self, declared: type) -> str:
        source = self.source
        with source.block("def encode(m_0, on_error=ignore):"):
            source.line("out = []")
            source.line("parts = []")
            source.line("add = parts.append")
            if self._pauses:
                source.line("if False: yield")  # a generator, arrays or not
            self._struct(declared, 0)
            self._flush()
            with source.block("if parts:"):
                source.line("out.append(join(parts))")
            source.line("return out")
        return source.text()

    def _struct(self, declared: type, level: int) -> None:
        """Encode the struct in the variable of its level."""
        fields = wire_fields(declared, self._version)
        for item in fields:
            if item.tag is None:
                self._field(item, level)
        if self._flexible:
            self._tagged([item for item in fields if item.tag is not None], level)

    def _field(self, item: Field, level: int) -> None:
        value = f"m_{level}.{item.name}"
        if not isinstance(item.kind, Kind):
            self._nested(item.kind, value, level, nullable=item.is_nullable(self._version))
        elif item.kind is ERROR_CODE:
            self._run.append((self._error_code(item, level), item.kind.code))
        elif item.kind.code:
            self._run.append((value, item.kind.code))
        else:
            self._sized(item.kind, value, level, nullable=item.is_nullable(self._version))

    def _error_code(self, item: Field, level: int) -> str:
        """Report the code unless it is NONE; returns the variable that has it."""
        source, variable = self.source, f"{item.name}_{level}"
        source.line(f"{variable} = m_{level}.{item.name}")
        with source.block(f"if {variable}:"):
            source.line(f"on_error({variable})")
        return variable

    def _nested(self, kind: type, value: str, level: int, *, nullable: bool) -> None:
        """Encode a struct; one that may be null starts with a byte that is negative when it is."""
        source, variable = self.source, f"m_{level + 1}"
        self._flush()
        source.line(f"{variable} = {value}")
        if not nullable:
            self._struct(kind, level + 1)
            return
        with source.block(f"if {variable} is None:"):
            source.line("add(b'\\xff')")
        with source.block("else:"):
            source.line("add(b'\\x01')")
            self._struct(kind, level + 1)
            self._flush()

    def _sized(self, kind: Kind[Any], value: str, level: int, *, nullable: bool) -> None:
        """Encode what starts with its length or count."""
        source, variable = self.source, f"value_{level}"
        if not nullable:
            self._content(kind, value, level)
            return
        self._flush()
        source.line(f"{variable} = {value}")
        with source.block(f"if {variable} is None:"):
            null = b"\0" if self._flexible else b"\xff\xff" if kind is STRING else b"\xff\xff\xff\xff"
            source.line(f"add({null!r})")
        with source.block("else:"):
            self._content(kind, variable, level)
            self._flush()

    def _content(self, kind: Kind[Any], value: str, level: int) -> None:
        source = self.source
        if kind.element is not None:
            self._array(kind.element, value, level)
        elif kind is STRING:
            source.line(f"text = {value}.encode()")
            self._length("len(text)", "h")
            self._flush()
            source.line("add(text)")
        elif kind is BYTES:
            source.line(f"content = {value}")
            self._length("len(content)", "i")
            self._flush()
            source.line("add(content)")
        else:
            assert kind is RECORDS
            self._records(value)

    def _records(self, value: str) -> None:
        source = self.source
        source.line(f"buffers = {value}")
        with source.block("if isinstance(buffers, single):"):
            source.line("buffers = (buffers,)")
        self._length("sum(map(len, buffers))", "i")
        self._flush()
        source.line("out.append(join(parts))")
        source.line("parts.clear()")
        source.line("out += buffers")

    def _array(self, element: Kind[Any] | type, value: str, level: int) -> None:
        source = self.source
        source.line(f"items = {value}")
        self._length("len(items)", "i")
        self._flush()
        if isinstance(element, Kind) and element.code:
            source.line(f"add(pack(f'>{{len(items)}}{element.code}', *items))")
            return
        item = f"m_{level + 1}"
        with source.block(f"for {item} in items:"):
            if isinstance(element, Kind):
                self._sized(element, item, level + 1, nullable=False)
            else:
                self._struct(element, level + 1)
            self._flush()
            if self._pauses:
                self._pause()

    def _pause(self) -> None:
        source = self.source
        with source.block(f"if len(parts) < {_PARTS_MAX}:"):
            source.line("yield 0")
        with source.block("else:"):
            source.line("out.append(join(parts))")
            source.line("parts.clear()")
            source.line("yield len(out[-1])")

    def _length(self, expression: str, code: str) -> None:
        """Encode a length or count: a compact one is one more than it says, as zero stands for null."""
        if self._flexible:
            self._flush()
            self.source.line(f"add(varint({expression} + 1))")
        else:
            self._run.append((expression, code))

    def _tagged(self, fields: list[Field], level: int) -> None:
        """Encode the tagged fields that differ from their defaults."""
        if not fields:
            self._run.append(("0", "B"))
            return
        source, tags = self.source, f"tags_{level}"
        self._flush()
        source.line(f"{tags} = []")
        for item in sorted(fields, key=lambda item: item.tag or 0):
            self._tagged_field(item, level)
        with source.block(f"if {tags}:"):
            source.line(f"add(varint(len({tags})))")
            source.line(f"parts += {tags}")
        with source.block("else:"):
            source.line("add(b'\\0')")

    def _tagged_field(self, item: Field, level: int) -> None:
        source, mark = self.source, f"mark_{level}"
        value = f"m_{level}.{item.name}"
        differs = f"{value} {'is not' if item.default is None else '!='} {item.literal}"
        with source.block(f"if {differs if item.is_constant else value}:"):
            source.line(f"{mark} = len(parts)")
            pauses, self._pauses = self._pauses, False  # what is in `parts` is taken out again
            self._field(item, level)
            self._flush()
            self._pauses = pauses
            source.line(f"body = join(parts[{mark}:])")
            source.line(f"del parts[{mark}:]")
            source.line(f"tags_{level}.append(varint({item.tag}) + varint(len(body)) + body)")

    def _flush(self) -> None:
        """Encode the gathered fixed-size fields with one packing."""
        run, self._run = self._run, []
        if not run:
            return
        if run == [("0", "B")]:
            self.source.line("add(b'\\0')")
            return
        pack, _ = self.source.packing("pack", "".join(code for _, code in run))
        self.source.line(f"add({pack}({', '.join(expression for expression, _ in run)}))")


def _ignore(_: ErrorCode) -> None:
    """Ignore error codes of an answer that is not counted."""

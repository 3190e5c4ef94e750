"""Writes the source of decoders: straight-line code for one message at one version.

In the code written, `data` is the body, `p` the position in it, `end` its length, `left` how many elements it may still
have. Every count and length is checked against what is left before anything is allocated for it. The decoder of a long
message is the same code with a pause after each element of an array.
"""

import struct
from typing import Any

from pqbroker.protocol.errors import ErrorCode, ProtocolError, TooManyElements
from pqbroker.protocol.primitives import ELEMENTS_MAX, STRING_BYTES_MAX, read_unsigned_varint, skip_tagged_fields
from pqbroker.protocol.schema import BYTES, ERROR_CODE, RECORDS, STRING, Field, Kind, message, wire_fields
from pqbroker.protocol.source import Source


def decoder_source(declared: type, version: int) -> tuple[str, dict[str, object]]:
    """The source of `decode(data, elements_max)` for a message at a version, and the globals it needs."""
    return _source(declared, version, pauses=False)


def sliced_decoder_source(declared: type, version: int) -> tuple[str, dict[str, object]]:
    """The source of a generator `decode(data, elements_max)`; it returns the message and its count of elements."""
    return _source(declared, version, pauses=True)


def _source(declared: type, version: int, *, pauses: bool) -> tuple[str, dict[str, object]]:
    writer = _Decoder(declared, version, pauses=pauses)
    return writer.message(declared), writer.source.names


_TAKEN = {STRING: "str(data[p:q], 'utf-8')", BYTES: "bytes(data[p:q])", RECORDS: "data[p:q]"}


class _Decoder:
    """One function being written. Variables of a struct carry its level of nesting, so that none shadows another."""

    def __init__(self, declared: type, version: int, *, pauses: bool) -> None:
        self.source = Source(
            ProtocolError=ProtocolError, StructError=struct.error, TooManyElements=TooManyElements,
            varint=read_unsigned_varint, skip=skip_tagged_fields, unpack_from=struct.unpack_from, ErrorCode=ErrorCode,
        )  # fmt: skip
        self._title = f"{declared.__name__} v{version}"
        self._version = version
        self._flexible = version in message(declared).flexible
        self._pauses = pauses
        self._run: list[tuple[str, str]] = []

    def message(self, declared: type) -> str:
        source, title = self.source, self._title
        with source.block(f"def decode(data, elements_max={ELEMENTS_MAX}):"):
            source.line("p = 0")
            source.line("end = len(data)")
            source.line("left = elements_max")
            if self._pauses:
                source.line("if False: yield")  # a generator, arrays or not
            with source.block("try:"):
                source.line(f"message = {self._struct(declared, 0)}")
            with source.block("except (IndexError, StructError):"):
                source.line(f"raise ProtocolError('{title} ends too early') from None")
            with source.block("except UnicodeDecodeError:"):
                source.line(f"raise ProtocolError('{title}: a string is not UTF-8') from None")
            # Kafka passes over bytes after a request; librdkafka sends three after Metadata 9+ for all topics.
            if not message(declared).may_be_longer:
                with source.block("if p != end:"):
                    source.line(f"raise ProtocolError(f'{title} is followed by {{end - p}} bytes')")
            source.line("return message, elements_max - left" if self._pauses else "return message")
        return source.text()

    def _struct(self, declared: type, level: int) -> str:
        """Decode the fields of a struct; returns the expression that makes it."""
        fields = wire_fields(declared, self._version)
        variables = {item.name: f"{item.name}_{level}" for item in fields}
        for item in fields:
            if item.tag is None:
                self._field(item, variables[item.name], level)
        if self._flexible:
            self._tagged([item for item in fields if item.tag is not None], variables, level)
        self._flush()
        name = self.source.bind(declared.__name__, declared)
        return f"{name}({', '.join(f'{item.name}={_made(item, variables[item.name])}' for item in fields)})"

    def _field(self, item: Field, variable: str, level: int) -> None:
        if not isinstance(item.kind, Kind):
            self._nested(item.kind, variable, level, nullable=item.is_nullable(self._version))
        elif item.kind.code:
            self._run.append((variable, item.kind.code))
        else:
            self._sized(item.kind, variable, level, nullable=item.is_nullable(self._version))

    def _nested(self, kind: type, variable: str, level: int, *, nullable: bool) -> None:
        """Decode a struct; one that may be null starts with a byte that is negative when it is."""
        source = self.source
        if not nullable:
            expression = self._struct(kind, level + 1)
            source.line(f"{variable} = {expression}")
            return
        self._run.append((f"n_{level}", "b"))
        self._flush()
        source.line(f"{variable} = None")
        with source.block(f"if n_{level} >= 0:"):
            expression = self._struct(kind, level + 1)
            source.line(f"{variable} = {expression}")

    def _sized(self, kind: Kind[Any], variable: str, level: int, *, nullable: bool) -> None:
        """Decode what starts with its length or count."""
        source, length = self.source, f"n_{level}"
        null = self._length(kind, length)
        if not nullable:
            with source.block(f"if {null}:"):
                source.line(f"raise ProtocolError('{self._title}: null in {variable}')")
            self._content(kind, variable, level)
            return
        with source.block(f"if {null}:"):
            source.line(f"{variable} = None")
        with source.block("else:"):
            self._content(kind, variable, level)

    def _length(self, kind: Kind[Any], length: str) -> str:
        """Decode a length; returns the condition under which it means null."""
        source = self.source
        if not self._flexible:
            self._run.append((length, "h" if kind is STRING else "i"))
            self._flush()
            return f"{length} == -1"
        self._run.append((length, "B"))
        self._flush()
        with source.block(f"if {length} > 127:"):
            source.line(f"{length}, p = varint(data, p - 1)")
            if kind is STRING:
                with source.block(f"if {length} > {STRING_BYTES_MAX + 1}:"):
                    too_long = f"'{self._title}: a string is longer than {STRING_BYTES_MAX} bytes'"
                    source.line(f"raise ProtocolError({too_long})")
        return f"not {length}"

    def _content(self, kind: Kind[Any], variable: str, level: int) -> None:
        """Decode what follows a length: a string, bytes, records or the elements of an array."""
        source, length = self.source, f"n_{level}"
        if self._flexible:
            source.line(f"{length} -= 1")
        if kind.element is not None:
            self._array(kind.element, variable, level)
            return
        assert kind in _TAKEN
        source.line(f"q = p + {length}")
        self._check("q > end" if self._flexible else "not p <= q <= end", variable)
        source.line(f"{variable} = {_TAKEN[kind]}")
        source.line("p = q")

    def _array(self, element: Kind[Any] | type, variable: str, level: int) -> None:
        source, count = self.source, f"n_{level}"
        least = _bytes_min(element, self._version, flexible=self._flexible)
        too_many = f"{count} * {least} > end - p"
        self._check(too_many if self._flexible else f"{count} < 0 or {too_many}", variable)
        self._charge(count)
        if isinstance(element, Kind) and element.code:
            source.line(f"{variable} = list(unpack_from(f'>{{{count}}}{element.code}', data, p))")
            source.line(f"p += {count} * {least}")
            return
        source.line(f"{variable} = []")
        with source.block(f"for _ in range({count}):"):
            if isinstance(element, Kind):
                made = f"item_{level}"
                self._sized(element, made, level + 1, nullable=False)
            else:
                made = self._struct(element, level + 1)
            source.line(f"{variable}.append({made})")
            if self._pauses:
                source.line("yield")

    def _tagged(self, fields: list[Field], variables: dict[str, str], level: int) -> None:
        """Decode the tagged fields that end a flexible struct; unknown tags are passed over."""
        source, tags = self.source, f"tags_{level}"
        self._run.append((tags, "B"))
        self._flush()
        for item in fields:
            assert item.is_constant or isinstance(item.kind, Kind)
            default = item.literal if item.is_constant else "[]"
            source.line(f"{variables[item.name]} = {default}")
        with source.block(f"if {tags}:"):
            if not fields:
                source.line(f"p, {tags} = skip(data, p - 1, end, left)")
                source.line(f"left -= {tags}")
                return
            with source.block(f"if {tags} > 127:"):
                source.line(f"{tags}, p = varint(data, p - 1)")
            self._charge(tags)
            with source.block(f"for _ in range({tags}):"):
                self._tagged_field(fields, variables, level)

    def _tagged_field(self, fields: list[Field], variables: dict[str, str], level: int) -> None:
        source, stop = self.source, f"stop_{level}"
        source.line(f"tag_{level}, p = varint(data, p)")
        source.line(f"{stop}, p = varint(data, p)")
        source.line(f"{stop} += p")
        self._check(f"{stop} > end", "a tagged field")
        for item in fields:
            with source.block(f"if tag_{level} == {item.tag}:"):
                self._field(item, variables[item.name], level)
                self._flush()
                with source.block(f"if p != {stop}:"):
                    source.line(f"raise ProtocolError('{self._title}: {item.name} is not as long as it says')")
        source.line(f"p = {stop}")

    def _check(self, wrong: str, what: str) -> None:
        with self.source.block(f"if {wrong}:"):
            self.source.line(f"raise ProtocolError('{self._title}: {what} runs past the end')")

    def _charge(self, count: str) -> None:
        """Count elements: their number in a message is limited, however small they are."""
        self.source.line(f"left -= {count}")
        with self.source.block("if left < 0:"):
            self.source.line(f"raise TooManyElements(f'{self._title} has more than {{elements_max}} elements')")

    def _flush(self) -> None:
        """Decode the gathered fixed-size fields with one unpacking."""
        run, self._run = self._run, []
        if not run:
            return
        if len(run) == 1 and run[0][1] == "B":
            self.source.line(f"{run[0][0]} = data[p]")
            self.source.line("p += 1")
            return
        unpack, size = self.source.packing("unpack_from", "".join(code for _, code in run))
        self.source.line(f"{', '.join(variable for variable, _ in run)}, = {unpack}(data, p)")
        self.source.line(f"p += {size}")


def _made(item: Field, variable: str) -> str:
    """Return the expression that a field is given for the variable that was decoded for it."""
    return f"ErrorCode({variable})" if item.kind is ERROR_CODE else variable


def _bytes_min(kind: Kind[Any] | type, version: int, *, flexible: bool) -> int:
    """The fewest bytes that a value takes on the wire."""
    if not isinstance(kind, Kind):
        fields = [item for item in wire_fields(kind, version) if item.tag is None]
        nullable = [item for item in fields if not isinstance(item.kind, Kind) and item.is_nullable(version)]
        sent = [item for item in fields if item not in nullable]
        return sum(_bytes_min(item.kind, version, flexible=flexible) for item in sent) + len(nullable) + flexible
    if kind.code:
        return struct.calcsize(">" + kind.code)
    if flexible:
        return 1
    return 2 if kind is STRING else 4

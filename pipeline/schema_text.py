"""Columns of a schema in SQL as `--schema` gives them, read without Spark: names, types, and which are NOT NULL.

It is no parser of Spark's whole language: Spark may refuse a text that is read here. Spark refuses whatever is refused
here.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import pairwise
from typing import Final, NamedTuple

from pqbroker.pipeline.errors import JobError

INTEGERS: Final = frozenset(("BIGINT", "LONG", "INT", "INTEGER", "SMALLINT", "SHORT", "TINYINT", "BYTE"))
FRACTIONS: Final = frozenset(("DOUBLE", "FLOAT", "REAL", "DECIMAL", "DEC", "NUMERIC"))
BOOLEAN: Final = "BOOLEAN"
_TYPES: Final = frozenset((
    *INTEGERS, *FRACTIONS, BOOLEAN, "STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY", "DATE", "TIME", "TIMESTAMP",
    "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "INTERVAL", "VOID", "VARIANT", "GEOGRAPHY", "GEOMETRY", "ARRAY", "MAP", "STRUCT",
))  # fmt: skip
_TOKEN: Final = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[<>(),]|[^\s<>(),`:]+")
_CLOSING: Final = {"<": ">", "(": ")"}
_EXAMPLE: Final = "id BIGINT NOT NULL, name STRING, prices ARRAY<DOUBLE>"


class SchemaColumn(NamedTuple):
    """A column of the schema."""

    name: str
    type: str
    """Name of the type in upper case, without types that it holds."""
    is_required: bool


def read_columns(text: str) -> list[SchemaColumn]:
    """Return the columns of the top. JobError names the first that is wrong."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens[:2]).upper() == "STRUCT<" and tokens[-1] == ">":
        tokens = tokens[2:-1]
    columns = [_column(each, text) for each in _parts(tokens, text)]
    if not columns:
        raise not_a_schema(text)
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise not_a_schema(text, f"the column {column.name} occurs twice")
        seen.add(column.name.lower())
    return columns


def not_a_schema(text: str, why: str = "") -> JobError:
    """Return the error of a schema that is none."""
    what = f"--schema {text!r} is not a schema{why and ': '}{why}"
    return JobError(f"{what}; it is written NAME TYPE, …, such as: {_EXAMPLE}")


def _parts(tokens: Iterable[str], text: str) -> Iterator[list[str]]:
    """Yield the tokens of each column, as commas outside of brackets part them."""
    part, open_ones = list[str](), list[str]()
    for token in tokens:
        if token in _CLOSING:
            open_ones.append(_CLOSING[token])
        elif token in _CLOSING.values() and (not open_ones or open_ones.pop() != token):
            raise not_a_schema(text, f"a {token} closes nothing")
        if token == "," and not open_ones:
            yield part
            part = []
        else:
            part.append(token)
    if open_ones:
        raise not_a_schema(text, f"a {open_ones[-1]} is missing")
    if part:
        yield part


def _column(tokens: list[str], text: str) -> SchemaColumn:
    if len(tokens) < 2:
        raise not_a_schema(text, f"the column {tokens[0]} has no type" if tokens else "a column is empty")
    name = tokens[0][1:-1].replace("``", "`") if tokens[0].startswith("`") else tokens[0]
    type_name = tokens[1].upper()
    if type_name not in _TYPES:
        near = get_close_matches(type_name, _TYPES, n=1)
        raise not_a_schema(text, f"{tokens[1]} is no type" + (f", did you mean {near[0]}?" if near else ""))
    outside, depth = list[str](), 0
    for token in tokens[2:]:
        depth += (token in _CLOSING) - (token in _CLOSING.values())
        outside.append(token.upper() if depth == 0 else "")
    return SchemaColumn(name, type_name, ("NOT", "NULL") in pairwise(outside))

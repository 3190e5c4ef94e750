"""Schemas of sorted tables: key columns first, ascending; then columns of values (C.1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from pqbroker.tables.column_documents import check_column_names, invalid_schema, is_wider, read_column
from pqbroker.tables.refusals import TableError, nearest
from pqbroker.tables.sorted.expressions import HashExpression, hash_computer
from pqbroker.tables.sorted.keys import KEY_COLUMNS_MAX, key_decoder, key_encoder
from pqbroker.tables.sorted.packed_rows import RowForm
from pqbroker.tables.sorted.shown_columns import ShownColumns
from pqbroker.tables.types import ColumnType

SORT_ORDER: Final = "sort_order"
ASCENDING: Final = "ascending"
EXPRESSION: Final = "expression"
_FIELDS = ("name", "type", "required", SORT_ORDER, EXPRESSION)
_SYSTEM = "$"


@dataclass(frozen=True)
class SortedColumn:
    """One column."""

    name: str
    type: ColumnType
    is_required: bool
    is_key: bool
    expression: HashExpression | None = None
    """Expression by which the table fills the column; None: rows give it."""

    def document(self) -> dict[str, Any]:
        """Return the column as it is stored and shown."""
        found: dict[str, Any] = {"name": self.name, "type": self.type.name, "required": self.is_required}
        if self.is_key:
            found[SORT_ORDER] = ASCENDING
        if self.expression is not None:
            found[EXPRESSION] = self.expression.text
        return found


@dataclass(frozen=True)
class SortedSchema:
    """Columns by name, in their order."""

    columns: Mapping[str, SortedColumn]
    keys: Sequence[SortedColumn] = field(init=False)
    values: Sequence[SortedColumn] = field(init=False)

    def __post_init__(self) -> None:
        known = self.columns.values()
        object.__setattr__(self, "keys", tuple(column for column in known if column.is_key))
        object.__setattr__(self, "values", tuple(column for column in known if not column.is_key))

    @cached_property
    def encode_key(self) -> Any:
        """Return the encoder of keys, `keys.key_encoder`'s."""
        return key_encoder([column.type.name for column in self.keys])

    @cached_property
    def decode_key(self) -> Any:
        """Return the decoder of keys, `keys.key_decoder`'s."""
        return key_decoder([column.type.name for column in self.keys])

    @cached_property
    def given_keys(self) -> Sequence[SortedColumn]:
        """Return the key columns that rows and lookups give."""
        return tuple(column for column in self.keys if column.expression is None)

    @cached_property
    def given_key_names(self) -> Sequence[str]:
        """Return the names of `given_keys`."""
        return tuple(column.name for column in self.given_keys)

    @cached_property
    def all_shown(self) -> ShownColumns:
        """Return all columns as rows are shown."""
        return ShownColumns(self)

    @cached_property
    def computers(self) -> Mapping[str, Callable[[Mapping[str, Any]], int]]:
        """Return what computes each key column that the table fills, of the other values of a key."""
        types = {column.name: column.type.name for column in self.keys}
        computed = [(column.name, column.expression) for column in self.keys if column.expression is not None]
        return {name: hash_computer(expression, types) for name, expression in computed}

    @cached_property
    def form(self) -> RowForm:
        """Return the packed form of the rows."""
        return RowForm([column.type.name for column in self.values])

    def documents(self) -> tuple[dict[str, Any], ...]:
        return tuple(column.document() for column in self.columns.values())


def is_sorted(items: Sequence[Any]) -> bool:
    """Return True if these columns, as a client gives them, are a sorted table's."""
    return any(isinstance(item, dict) and SORT_ORDER in item for item in items)


def read_sorted_schema(items: Sequence[Any], columns_max: int) -> SortedSchema:
    """Return the schema that a client gives, or that is stored. TableError INVALID_SCHEMA names the field."""
    if not 1 <= len(items) <= columns_max:
        text = f"schema has {len(items)} columns; a table has 1 to {columns_max}"
        raise invalid_schema(text, "Give a column at least, and no more than pqbroker.table.columns.max.")
    columns: dict[str, SortedColumn] = {}
    for number, item in enumerate(items):
        column = _read(item, f"schema[{number}]")
        if column.name in columns:
            raise invalid_schema(f"schema[{number}].name {column.name!r} is there twice", "Name each column once.")
        if column.is_key and len(columns) > sum(known.is_key for known in columns.values()):
            text = f"schema[{number}].{SORT_ORDER} of column {column.name!r} follows a column without one"
            raise invalid_schema(text, "Put the key columns first.")
        columns[column.name] = column
    schema = SortedSchema(columns)
    if not 1 <= len(schema.keys) <= KEY_COLUMNS_MAX:
        text = f"schema has {len(schema.keys)} key columns; a sorted table has 1 to {KEY_COLUMNS_MAX}"
        raise invalid_schema(text, f'Give {{"{SORT_ORDER}": "{ASCENDING}"}} to those that rows are found by.')
    for column in schema.keys:
        if column.expression is not None:
            _check_expression(schema, column, column.expression)
    if not schema.values:
        raise invalid_schema("schema has key columns alone", "Give one column at least that is no part of the key.")
    return schema


def check_sorted_names(schema: SortedSchema, old: SortedSchema | None = None) -> None:
    """TableError INVALID_SCHEMA as `check_column_names`."""
    check_column_names(schema.columns, () if old is None else old.columns)


def check_sorted_alteration(old: SortedSchema, new: SortedSchema) -> None:
    """TableError INCOMPATIBLE_SCHEMA where rows of the old schema are none of the new one. Columns of values may be
    added behind the others and become optional, integers of values become wider; the key stays as it is."""
    before, after = list(old.columns.values()), list(new.columns.values())
    for column, later in zip(before, after, strict=False):
        if later.name != column.name or later.is_key != column.is_key:
            text = f"column {later.name!r} stands where {column.name!r} was"
            raise _incompatible(text, "Keep the columns and their order, and add new ones behind them.")
        if column.is_key and _key_traits(later) != _key_traits(column):
            raise _incompatible(f"key column {column.name!r} changes", "Leave it: rows are stored by their keys.")
        if not is_wider(column.type, later.type):
            text = f"column {column.name!r} is {column.type.name}, which does not become {later.type.name}"
            raise _incompatible(text, "Keep the type, or give an integer that holds every value of the old one.")
        if later.is_required and not column.is_required:
            raise _incompatible(f"column {column.name!r} becomes required", "Leave it optional: stored rows lack it.")
    if len(after) < len(before):
        raise _incompatible(f"column {before[len(after)].name!r} is missing", "Keep every column; none can be removed.")
    for column in after[len(before) :]:
        if column.is_key or column.is_required:
            what = "part of the key" if column.is_key else "required"
            raise _incompatible(f"the new column {column.name!r} is {what}", "Make it an optional one: rows lack it.")


def _key_traits(column: SortedColumn) -> tuple[Any, ...]:
    return column.type, column.is_required, column.expression


def _read(item: Any, where: str) -> SortedColumn:
    name, column_type, is_required = read_column(item, where, _FIELDS)
    order = item.get(SORT_ORDER)
    if order not in (None, ASCENDING):
        raise invalid_schema(f"{where}.{SORT_ORDER} of column {name!r} is {order!r}", f"Give {ASCENDING!r}.")
    if name.startswith(_SYSTEM):
        raise invalid_schema(f"{where}.name is {name!r}", f"Choose a name that does not begin with {_SYSTEM}.")
    expression = None
    if EXPRESSION in item and item[EXPRESSION] is not None:
        expression = _read_expression(item[EXPRESSION], f"{where}.{EXPRESSION} of column {name!r}")
        if order is None:
            text = f"{where}.{EXPRESSION} is given, and column {name!r} is no part of the key"
            raise invalid_schema(text, f'Give it {{"{SORT_ORDER}": "{ASCENDING}"}} too, or leave {EXPRESSION} out.')
        if column_type.bounds is None or column_type.bounds[1] < expression.modulus - 1:
            text = f"{where}.type of column {name!r} is {column_type.name!r}, which does not hold its {EXPRESSION}"
            raise invalid_schema(text, "Give uint64, or another integer that is large enough.")
    if order is not None and column_type.name == "any":
        raise invalid_schema(f"{where}.type of key column {name!r} is 'any'", "Give a type that has an order.")
    return SortedColumn(name, column_type, is_required, order is not None, expression)


def _read_expression(given: Any, where: str) -> HashExpression:
    try:
        return HashExpression.parse(given if isinstance(given, str) else "")
    except ValueError as wanted:
        text = str(wanted)
        raise invalid_schema(f"{where} is {str(given)[:100]!r}", f"{text[:1].upper()}{text[1:]}.") from None


def _check_expression(schema: SortedSchema, column: SortedColumn, expression: HashExpression) -> None:
    given = [known.name for known in schema.given_keys]
    for name in expression.columns:
        if name not in given:
            text = f"{EXPRESSION} of column {column.name!r} has {name[:100]!r}, which is no key column that rows give"
            raise invalid_schema(text, nearest(name[:100], given))


def _incompatible(message: str, cure: str) -> TableError:
    return TableError("INCOMPATIBLE_SCHEMA", message, cure)

"""Descriptions of tables for people: `pqbroker table describe`, and the lines that say what was created."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pqbroker.cli.commands.table_columns import key_names
from pqbroker.cli.commands.table_rows import shown_cell
from pqbroker.cli.output import say, show_bytes, show_table

RANGES_SHOWN = 10


def summary_of(table: Mapping[str, Any]) -> str:
    """Return what a table is, in some words."""
    count = table["tablet_count"]
    counted = f"{count} tablet{'s' * (count != 1)}, {table['state']}"
    if is_sorted(table):
        return f"sorted table {table['path']}, by {', '.join(key_names(table['schema']))}, {counted}"
    if not table["dynamic"]:
        return f"static table {table['path']}, {table['name']} in SQL"
    return f"table {table['path']}, topic {table['name']}, {counted}"


def kind_of(table: Mapping[str, Any]) -> str:
    """Return the kind of a table, in a word."""
    return "sorted" if is_sorted(table) else "ordered" if table["dynamic"] else "static"


def is_sorted(table: Mapping[str, Any]) -> bool:
    """Return True if rows are found by key."""
    found: bool = table.get("sorted", False)
    return found


def show_description(table: Mapping[str, Any], tablets: Sequence[Mapping[str, Any]]) -> None:
    """Write all that is said of a table."""
    say(summary_of(table))
    for name, value in table["formats"].items():
        say(f"  {name}={value}")
    _show_attributes(table, tablets)
    columns = ("name", "type", "required", "sort_order" if is_sorted(table) else "from")
    show_table(columns, ([shown_cell(column.get(name)) for name in columns] for column in table["schema"]))
    if not tablets:
        return
    if is_sorted(table):
        _show_sorted_tablets(tablets)
        return
    counts = ("index", "state", "trimmed_row_count", "flushed_row_count", "total_row_count")
    header = ("tablet", "state", "trimmed", "flushed", "rows_end")
    show_table(header, ([tablet[name] for name in counts] for tablet in tablets))


def _show_attributes(table: Mapping[str, Any], tablets: Sequence[Mapping[str, Any]]) -> None:
    """Write each attribute; of the many that sorted tables have, those that are set or act otherwise."""
    left_out = 0
    for name, value in table["attributes"].items():
        acting = _acting(name, value, table, tablets)
        if is_sorted(table) and not acting and name not in table["attributes_set"]:
            left_out += 1
        else:
            say(f"  {name}={_set(value)}{acting}")
    if left_out:
        say(f"  {left_out} attributes have their defaults: `pqbroker get {table['path']}/@mount_config` prints them")


def _show_sorted_tablets(tablets: Iterable[Mapping[str, Any]]) -> None:
    header = ("tablet", "state", "pivot", "rows_in_chunks", "chunks", "overlap", "partitions", "size", "memory")
    counts = ("unmerged_row_count", "chunk_count", "overlapping_store_count", "partition_count")
    sizes = ("compressed_data_size", "memory_size")
    rows = []
    for tablet in tablets:
        facts = tablet["statistics"]
        known = [*(facts[name] for name in counts), *(show_bytes(facts[name]) for name in sizes)]
        rows.append([tablet["index"], tablet["state"], shown_cell(tablet["pivot_key"]), *known])
    show_table(header, rows)


def _acting(name: str, value: Any, table: Mapping[str, Any], tablets: Iterable[Mapping[str, Any]]) -> str:
    """Return the other values of an attribute that act, and where."""
    agreed = table["mounted_attributes"]
    if name in agreed:
        return "" if agreed[name] == value else f", {_set(agreed[name])} until the table is remounted"
    indexes: dict[Any, list[int]] = {}
    for tablet in tablets:
        if (acting := tablet["mounted_attributes"][name]) != value:
            indexes.setdefault(acting, []).append(tablet["index"])
    return "".join(f", {_set(other)} in tablets {ranges_of(which)} until remounted" for other, which in indexes.items())


def ranges_of(indexes: list[int]) -> str:
    """Return rising numbers such as 0-2,5; the first ones of many."""
    present = set(indexes)
    starts = [index for index in indexes if index - 1 not in present]
    ends = [index for index in indexes if index + 1 not in present]
    pairs = [f"{start}-{end}" if end > start else str(start) for start, end in zip(starts, ends, strict=True)]
    return ",".join(pairs[:RANGES_SHOWN]) + ",…" * (len(pairs) > RANGES_SHOWN)


def _set(value: object) -> object:
    """Return the value that an attribute is set to; null: it is set to nothing."""
    return "none" if value is None else value

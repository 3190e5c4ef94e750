"""Creating tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pqbroker.broker.services.tables.callers import TablesCaller
from pqbroker.broker.services.topics.directories import bundle_of
from pqbroker.broker.services.topics.finding import check_creation
from pqbroker.broker.services.topics.topic_schemas import SCHEMA
from pqbroker.broker.services.topics.topics import check_new_topic, create_topic
from pqbroker.conf.table_attributes import retention_ms
from pqbroker.pq.serving.topic import Topic
from pqbroker.storage.bundles.bundle import DEFAULT_BUNDLE
from pqbroker.storage.tablets.mounted_attributes import MountedAttributes
from pqbroker.storage.tablets.scheme_state import TableRecord
from pqbroker.tables.attributes import check_attributes
from pqbroker.tables.mount import MountState
from pqbroker.tables.paths import topic_name
from pqbroker.tables.refusals import TableError
from pqbroker.tables.schema import check_names, read_schema

_CONFIG = {"pq.partitions.per.tablet": "1", "retention.bytes": "-1", "value.invalid": "refuse"}
"""Configs of every table's topic, besides retention.ms. Tablets are mounted one by one, attributes say when rows are
removed (E.6), and a record that is not a row is refused."""


_OWN_CONFIG = {
    SCHEMA: "Give the columns as schema.",
    "pq.bundle": "Give the bundle as bundle.",
    "pq.partitions.per.tablet": "Leave it out: each partition of a table is a tablet.",
    "retention.ms": "Give max_data_ttl among the attributes.",
}
"""Configs that are not given as such, with what is given instead."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table as it is asked for. What is None was left out."""

    path: str
    columns: Sequence[Mapping[str, Any]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    """Configs of its topic."""
    bundle: str | None = None
    """None: that of the directory, or the default one."""
    tablet_count: int | None = None
    trimmed_row_counts: Sequence[int] | None = None
    """First row of each tablet."""
    is_mounted: bool | None = None
    """True or None: the tablets are mounted at once."""
    is_static: bool = False


async def create(caller: TablesCaller, new: NewTable) -> Topic:
    """Create a table and its topic.

    KafkaError as `check_new_topic` and TOPIC_AUTHORIZATION_FAILED; TableError NO_BUNDLE, INVALID_TABLE,
    INVALID_ATTRIBUTE and those of schemas; ConfigError.
    """
    name = topic_name(new.path)
    check_creation(caller, name)
    _check_config(new.config)
    schema = read_schema(new.columns, caller.node.settings.table_columns_max, new.config)
    check_names(schema)
    check_attributes(new.attributes)
    bundle, is_own = bundle_wanted(caller, name, new.bundle)
    in_bundle = {"pq.bundle": bundle} if is_own else {}
    first_rows = _first_rows(new)
    if new.is_static:
        _check_static(new)
    count = len(first_rows)
    table = TableRecord(
        schema.documents(), new.attributes, MountedAttributes.collect([new.attributes] * count),
        (_first_state(new).value,) * count, tuple(first_rows), is_static=new.is_static,
    )  # fmt: skip
    age = {"retention.ms": str(retention_ms(new.attributes))}
    config = {**_CONFIG, **new.config, **schema.format_configs, **in_bundle, **age}
    check_new_topic(caller.node, name, count, config)
    return await create_topic(caller.node, name, count, config, table)


def _check_config(config: Mapping[str, str]) -> None:
    for name, cure in _OWN_CONFIG.items():
        if name in config:
            raise TableError("INVALID_TABLE", f"config has {name}, which a table has by another name", cure)


def bundle_wanted(caller: TablesCaller, name: str, given: str | None) -> tuple[str, bool]:
    """Return the bundle of a new table, and whether that is to be kept with it. TableError NO_BUNDLE."""
    opened = caller.node.cell.current
    inherited = bundle_of(opened.scheme, name)
    bundle, known = given or inherited or DEFAULT_BUNDLE, opened.hive.bundles
    if bundle not in known:
        text = f"bundle is {bundle[:100]!r}, and there is no such bundle"
        raise TableError("NO_BUNDLE", text, f"Give one of {', '.join(sorted(known))}.")
    return bundle, bundle != DEFAULT_BUNDLE or inherited is not None


def _first_state(new: NewTable) -> MountState:
    if new.is_static:
        return MountState.FROZEN
    return MountState.UNMOUNTED if new.is_mounted is False else MountState.MOUNTED


def _check_static(new: NewTable) -> None:
    """A static table has no tablets to speak of, and its commit_ordering is weak (E.10)."""
    of_tablets = {
        "tablet_count": new.tablet_count, "trimmed_row_counts": new.trimmed_row_counts, "mount": new.is_mounted
    }  # fmt: skip
    for name, given in of_tablets.items():
        if given is not None:
            text = f"{name} is given, and dynamic is false: a static table has no tablets"
            raise TableError("INVALID_TABLE", text, f"Leave {name} out, or make the table dynamic.")
    if new.attributes.get("commit_ordering", "weak") != "weak":
        text = "attributes.commit_ordering is 'strong', and dynamic is false"
        raise TableError("INVALID_ATTRIBUTE", text, "Leave it out: a static table's is weak.")


def _first_rows(new: NewTable) -> Sequence[int]:
    """Return where the rows of each tablet begin. Raise TableError INVALID_TABLE."""
    given = new.trimmed_row_counts
    if given is None:
        return [0] * (1 if new.tablet_count is None else new.tablet_count)
    if len(given) != new.tablet_count:
        text = f"trimmed_row_counts has {len(given)} numbers, for tablet_count = {new.tablet_count}"
        raise TableError("INVALID_TABLE", text, "Give tablet_count, and one number for each tablet.")
    return given

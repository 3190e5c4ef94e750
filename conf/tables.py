"""Settings of tables. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

COLUMNS_MAX = setting(
    "pqbroker.table.columns.max", Kind.INT, 1000, "Columns of a table at most.", low=1, high=100_000
)  # fmt: skip
ATTRIBUTE_SETS_MAX = setting(
    "pqbroker.table.attribute.sets.max", Kind.INT, 100,
    "Different sets of attributes that act in tablets of one table at most.", low=1, high=1_000,
)  # fmt: skip

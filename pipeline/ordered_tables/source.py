"""The format `ordered_table` of `spark.read`, `spark.readStream` and `DataFrame.write`: what Spark asks first."""

from functools import cached_property

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pqbroker.client import Column
from pqbroker.pipeline.ordered_tables.columns import chosen, is_sorted, spark_schema
from pqbroker.pipeline.ordered_tables.options import Options, read_options
from pqbroker.pipeline.ordered_tables.own_line import own_line_first
from pqbroker.pipeline.ordered_tables.reading import OrderedTableReader, Table
from pqbroker.pipeline.ordered_tables.sorted_rows import (
    SortedTableReader,
    SortedTableStreamReader,
    SortedTableStreamWriter,
    SortedTableWriter,
    sorted_schema,
)
from pqbroker.pipeline.ordered_tables.streaming import OrderedTableStreamReader
from pqbroker.pipeline.ordered_tables.writing import OrderedTableStreamWriter, OrderedTableWriter

FORMAT = "ordered_table"


class OrderedTableSource(DataSource):
    """The base class is Spark's way to be called."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @own_line_first()
    def schema(self) -> StructType:
        return self._shown

    @own_line_first()
    def reader(self, schema: StructType) -> OrderedTableReader | SortedTableReader:
        if is_sorted(self._columns):
            return SortedTableReader(self._table(schema), self._columns or ())
        return OrderedTableReader(self._table(schema))

    @own_line_first()
    def streamReader(  # noqa: N802 (Spark's name)
        self, schema: StructType
    ) -> OrderedTableStreamReader | SortedTableStreamReader:
        if is_sorted(self._columns):
            return SortedTableStreamReader(self._options)
        return OrderedTableStreamReader(self._table(schema))

    @own_line_first()
    def writer(self, schema: StructType, overwrite: bool) -> OrderedTableWriter | SortedTableWriter:
        if is_sorted(self._columns):
            return SortedTableWriter(self._options, self._columns or (), schema, overwrite=overwrite)
        return OrderedTableWriter(self._options, self._columns, schema, overwrite=overwrite)

    @own_line_first()
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> OrderedTableStreamWriter | SortedTableStreamWriter:
        if is_sorted(self._columns):
            return SortedTableStreamWriter(self._options, self._columns or (), schema, overwrite=overwrite)
        return OrderedTableStreamWriter(self._options, self._columns, schema, overwrite=overwrite)

    @cached_property
    def _options(self) -> Options:
        return read_options(self.options)

    @cached_property
    def _columns(self) -> tuple[Column, ...] | None:
        with self._options.client() as client:
            return client.table(self._options.table).columns()

    def _table(self, schema: StructType) -> Table:
        return Table(self._options, chosen(self._shown, schema))

    @property
    def _shown(self) -> StructType:
        return sorted_schema(self._columns or ()) if is_sorted(self._columns) else spark_schema(self._columns)


def register(spark: SparkSession) -> None:
    """Make the format known to a session."""
    spark.dataSource.register(OrderedTableSource)

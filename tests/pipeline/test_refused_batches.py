"""Refusals of a micro-batch in Spark's words: which batch, why, and the option that continues."""

from typing import Any, Self

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pqbroker.client import ClientError, Column, StagedPiece
from pqbroker.pipeline.errors import JobError
from pqbroker.pipeline.ordered_tables import options
from pqbroker.pipeline.ordered_tables.options import Options
from pqbroker.pipeline.ordered_tables.writing import OrderedTableStreamWriter, Staged

PIECES = [StagedPiece("0.1.0.0", 0, 1)]


class Refusing:
    """A client of a broker that refuses every commit."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __call__(self, http: str, ca: str | None = None) -> "Refusing":
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def table(self, name: str) -> "Refusing":
        return self

    def commit_staged(self, *_: Any, **__: Any) -> None:
        raise ClientError(self._code, "the broker's words", "The broker's cure.")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("CHANGED_BATCH", r'micro-batch 7 of t comes again with other rows \(the broker.s words\).*"keep".*"append"'),
        ("BATCH_DAMAGED", r'micro-batch 7 of t stands still.* \(the broker.s words\).*"append".*twice.*"keep"'),
        ("SESSION_AHEAD", r"micro-batch 7 of t is older than what the query wrote before \(the .*\).*appId"),
    ],
)
def test_a_refused_batch_is_named_with_the_option_that_continues(
    monkeypatch: pytest.MonkeyPatch, code: str, told: str
) -> None:
    monkeypatch.setattr(options, "Client", Refusing(code))
    schema = StructType([StructField("n", LongType())])
    writer = OrderedTableStreamWriter(Options("t"), [Column("n", "int64")], schema, overwrite=False)
    with pytest.raises(JobError, match=told):
        writer.commit([Staged("query", 0, PIECES)], 7)

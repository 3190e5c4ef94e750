"""`pqbroker topic analyze`: rates, sizes, skew and batches of a topic, from the headers of its latest batches."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pqbroker.cli.command import Family, declare
from pqbroker.cli.kafka.cluster import Cluster
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.options import Broker, Json, TopicName
from pqbroker.cli.output import say, show_bytes, show_json, show_table
from pqbroker.cli.parsing import option

if TYPE_CHECKING:
    from pqbroker.protocol.records import BatchHeader

SMALL_BATCH_BYTES = 16 << 10
"""Below this a broker works for requests more than for data."""
SKEW_MAX = 2.0
COLUMNS = ("partition", "records", "bytes", "records_per_s", "record_bytes", "batch_records", "batch_bytes", "codec")
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Row(NamedTuple):
    """One partition; what a sample of its latest batches gives is None where it has none."""

    partition: int
    records: int
    bytes: int | None
    records_per_s: float | None = None
    record_bytes: int | None = None
    batch_records: float | None = None
    batch_bytes: int | None = None
    codec: str | None = None


def add_analyze(app: Family) -> None:
    """Declare the command."""
    declare(app, "analyze", "pqbroker topic analyze orders --sample 100000")(analyze)


def analyze(
    topic: TopicName,
    sample: Annotated[
        int, option("--sample", metavar="COUNT", least=1, most=10_000_000, help="Latest records to read by partition.")
    ] = 10_000,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Show rates, sizes, skew and batches of a topic's partitions, from their latest records.

    The rate is that of the sampled records by their timestamps, sizes are those of stored batches.
    """
    from pqbroker.cli.kafka.figures import read_headers, read_sizes, read_spans

    with Cluster(broker) as cluster:
        found = cluster.topic(topic)
        spans, sizes = read_spans(cluster, [found]), read_sizes(cluster)
        rows: list[Row] = []
        for (_, index), (start, end) in sorted(spans.items()):
            headers = read_headers(cluster, found, index, max(start, end - sample), end)
            rows.append(_row(Row(index, end - start, sizes.get((topic, index))), headers))
    skew = _skew(rows)
    if json:
        show_json({"topic": topic, "skew": skew, "partitions": [each._asdict() for each in rows]})
        return
    total = sum(each.bytes or 0 for each in rows)
    say(f"topic {topic}, {sum(each.records for each in rows)} records, {show_bytes(total)}")
    show_table(("partition", "records", "size", "rec/s", "record", "in batch", "batch", "codec"), map(_shown, rows))
    for line in _advice(rows, skew):
        say(line)


def _row(row: Row, headers: "Iterable[BatchHeader]") -> Row:
    records, size, batches = 0, 0, 0
    codecs: Counter[int] = Counter()
    times: list[int] = []
    for header in headers:
        records, size, batches = records + header.record_count, size + header.size_bytes, batches + 1
        codecs[header.codec] += 1
        times += [header.base_timestamp, header.max_timestamp]
    if not records:
        return row
    seconds = (max(times) - min(times)) / 1000
    return row._replace(
        records_per_s=round(records / seconds, 1) if seconds > 0 else None,
        record_bytes=round(size / records),
        batch_records=round(records / batches, 1),
        batch_bytes=round(size / batches),
        codec=",".join(_CODECS[codec] for codec, _ in codecs.most_common() if codec < len(_CODECS)),
    )


def _skew(rows: list[Row]) -> float | None:
    """Return how many times the mean the largest partition holds."""
    total = sum(each.records for each in rows)
    return round(max(each.records for each in rows) * len(rows) / total, 2) if total else None


def _shown(row: Row) -> tuple[object, ...]:
    sizes = [None if size is None else show_bytes(size) for size in (row.bytes, row.record_bytes, row.batch_bytes)]
    return row.partition, row.records, sizes[0], row.records_per_s, sizes[1], row.batch_records, sizes[2], row.codec


def _advice(rows: list[Row], skew: float | None) -> Iterator[str]:
    if skew is not None and skew > SKEW_MAX:
        yield f"skew: the largest partition holds {skew} times the mean; few keys, or one that most records have"
    small = [size for size in (each.batch_bytes for each in rows) if size is not None and size < SMALL_BATCH_BYTES]
    if small:
        yield f"small batches: {show_bytes(min(small))}; let producers gather (linger.ms=10, batch.size=131072)"

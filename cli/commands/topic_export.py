"""`pqbroker topic export`: the records of a topic as one file, for a look with other tools."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from pqbroker.cli.command import Family, declare
from pqbroker.cli.kafka.cluster import Cluster, Topic
from pqbroker.cli.kafka.isolation import ReadIsolation
from pqbroker.cli.kafka.link import DEFAULT_KAFKA
from pqbroker.cli.kafka.positions import choose_partitions, parse_position, resolve
from pqbroker.cli.options import Broker, IsolationOption, Json, TopicName
from pqbroker.cli.output import say, show_bytes, show_json
from pqbroker.cli.parsing import Argument, option
from pqbroker.cli.progress import Progress
from pqbroker.cli.records.decoding import RecordDecoder, RegistryConfig, RegistryOption, decoder_of
from pqbroker.cli.refusals import CommandError

Offsets = dict[int, int]


def add_export(app: Family) -> None:
    """Declare the command."""
    declare(app, "export", "pqbroker topic export orders orders.parquet --from 2h")(export)


def export(
    topic: TopicName,
    file: Annotated[Path, Argument(metavar="FILE", help="File to write, named .parquet or .jsonl; must not exist.")],
    start: Annotated[
        str, option("--from", "-s", metavar="POSITION", help="Start: beginning, end, an offset, a time, an age (15m).")
    ] = "beginning",
    until: Annotated[str, option("--until", "-u", metavar="POSITION", help="First position not to export.")] = "end",
    partition: Annotated[
        list[int] | None,
        option("--partition", "-p", least=0, metavar="NUMBER", help="Partition; repeatable; without it: all."),
    ] = None,
    isolation: IsolationOption = ReadIsolation.COMMITTED,
    registry: RegistryOption = None,
    registry_config: RegistryConfig = None,
    broker: Broker = DEFAULT_KAFKA,
    json: Json = False,
) -> None:
    """Export the records of a topic to a Parquet or JSON lines file.

    Partitions follow each other, each in the order of its offsets, up to its end when the command began. Parquet needs
    pyarrow (extra `tables`). JSON lines have the form of `consume --json`. The file appears when it is whole. With
    --registry keys and values that producers wrote with a schema registry are JSON.
    """
    decoder = decoder_of(registry, registry_config)
    first, last = parse_position("--from", start), parse_position("--until", until)
    with Cluster(broker) as cluster:
        found = cluster.topic(topic)
        chosen = choose_partitions(found, partition or [])
        starts, ends = (resolve(cluster, found, chosen, each, isolation) for each in (first, last))
        with _whole(file) as draft:
            count = _export(_Part(cluster, found, starts, ends, isolation), draft, decoder)
    size = file.stat().st_size
    if json:
        show_json({"topic": topic, "file": str(file), "records": count, "bytes": size})
    else:
        say(f"{count} record{'s' * (count != 1)} of {topic} in {file}, {show_bytes(size)}")


@contextlib.contextmanager
def _whole(file: Path) -> Iterator[Path]:
    """A draft that becomes the file at the end, or goes; CommandError."""
    if file.exists():
        raise CommandError(f"{file} exists: choose another name, or delete it first")
    draft = file.with_name(f"{file.name}.unfinished")
    try:
        yield draft
        os.rename(draft, file)
    except OSError as failure:
        raise CommandError(f"{file} cannot be written: {failure.strerror or failure}") from None
    finally:
        draft.unlink(missing_ok=True)


class _Part(NamedTuple):
    """The records to export."""

    cluster: Cluster
    topic: Topic
    starts: Offsets
    ends: Offsets
    isolation: ReadIsolation


def _export(part: _Part, draft: Path, decoder: RecordDecoder | None) -> int:
    cluster, topic, starts, ends, isolation = part
    from pqbroker.cli.records.columns import read_columns
    from pqbroker.cli.records.exporting import writer_for

    writer = writer_for(draft, Path(draft.stem).suffix, topic.name)
    count = 0
    total = sum(ends[each] - starts[each] for each in starts)
    with contextlib.closing(writer), Progress("records exported", total) as shown:
        for index in starts:
            for columns in read_columns(cluster, topic, index, starts[index], ends[index], isolation):
                writer.add(index, columns if decoder is None else decoder.columns(columns))
                count += len(columns.offsets)
                shown.reach(count)
    return count

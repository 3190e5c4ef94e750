"""Options of the format `ordered_table`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pqbroker.client import DEFAULT_ADDRESS, Client
from pqbroker.pipeline.errors import JobError

EARLIEST, LATEST = "earliest", "latest"
ROWS_PER_PARTITION = 500_000
ON_CHANGED = ("fail", "keep", "append")
"""Ways to treat a micro-batch that comes again with other rows."""
_KNOWN = frozenset(
    ("path", "http", "startingoffsets", "endingoffsets", "maxrowspertrigger", "rowsperpartition", "failondataloss",
     "appid", "onchangedbatch", "timestamp", "update", "ca")
)  # fmt: skip
_OF_SPARK = frozenset(("checkpointlocation",))
"""Spark hands these on too."""
Offsets = str | Mapping[int, int]
"""`earliest`, `latest`, or row indexes by tablet."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options that a reader or writer is given."""

    table: str
    http: str = DEFAULT_ADDRESS
    starting: Offsets = EARLIEST
    ending: Offsets = LATEST
    rows_per_trigger_max: int | None = None
    rows_per_partition: int = ROWS_PER_PARTITION
    fails_on_data_loss: bool = True
    app_id: str | None = None
    on_changed_batch: str = ON_CHANGED[0]
    timestamp: int | None = None
    """Timestamp that a sorted table is read at; None: now."""
    is_update: bool = False
    """True if columns that rows of a sorted table lack stay as they were."""
    ca: str | None = None
    """File with the certificates that an https address's must lead to; None: the system's."""

    def client(self) -> Client:
        """Return a client of the broker."""
        return Client(self.http, ca=self.ca)


def read_options(given: Mapping[str, str]) -> Options:
    """JobError for an option that is wrong or unknown; Spark gives names in any case."""
    options = {name.lower(): text for name, text in given.items()}
    for name in options.keys() - _KNOWN - _OF_SPARK:
        raise JobError(f"format ordered_table has no option {name!r}: give {', '.join(sorted(_KNOWN))}")
    if not options.get("path"):
        raise JobError('format ordered_table is of one table: give its name or path, as in .load("//shop/orders")')
    limit = options.get("maxrowspertrigger")
    return Options(
        options["path"],
        options.get("http", DEFAULT_ADDRESS),
        _offsets("startingOffsets", options.get("startingoffsets", EARLIEST)),
        _offsets("endingOffsets", options.get("endingoffsets", LATEST)),
        None if limit is None else _count("maxRowsPerTrigger", limit),
        _count("rowsPerPartition", options.get("rowsperpartition", str(ROWS_PER_PARTITION))),
        _boolean("failOnDataLoss", options.get("failondataloss", "true")),
        options.get("appid"),
        _choice("onChangedBatch", options.get("onchangedbatch", ON_CHANGED[0]), ON_CHANGED),
        _count("timestamp", options["timestamp"]) if "timestamp" in options else None,
        _boolean("update", options.get("update", "false")),
        options.get("ca"),
    )


def _offsets(name: str, text: str) -> Offsets:
    if text in (EARLIEST, LATEST):
        return text
    try:
        return {int(tablet): int(index) for tablet, index in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        cure = 'give earliest, latest, or row indexes by tablet, as in {"0": 5}'
        raise JobError(f"{name} is {text!r}: {cure}") from None


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise JobError(f"{name} is {text!r}: give a number from 1 on")
    return int(text)


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise JobError(f"{name} is {text!r}: give true or false")
    return text.lower() == "true"


def _choice(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise JobError(f"{name} is {text!r}: give {', '.join(choices)}")
    return text.lower()

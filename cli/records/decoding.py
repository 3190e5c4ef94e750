"""Keys and values of records by the schemas of a registry, which this command asks itself: with any broker."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pqbroker.cli.notices import tell
from pqbroker.cli.parsing import option
from pqbroker.cli.records.formats import ReadRecord
from pqbroker.cli.refusals import WrongInput
from pqbroker.registry.named import NamedRegistry

if TYPE_CHECKING:
    from pqbroker.cli.records.columns import Columns

RegistryOption = Annotated[
    str | None,
    option(
        "--registry",
        metavar="URL",
        help="Schema registry with Confluent's API; keys and values that it has the schema of become JSON.",
    ),
]
RegistryConfig = Annotated[
    Path | None,
    option(
        "--registry-config",
        metavar="FILE",
        help="Properties for the registry: basic.auth.user.info or bearer.auth.token, schema.registry.ssl.….",
    ),
]


class DecodedRecord(NamedTuple):
    """A record whose key and value are JSON where they were decoded."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class RecordDecoder:
    """Decodes contents, and prints each reason once for which some stay as they are."""

    def __init__(self, registry: NamedRegistry) -> None:
        from pqbroker.registry.decoding import ContentDecoder

        self._decoder = ContentDecoder(registry)
        self._told: set[str] = set()

    def record(self, record: ReadRecord) -> ReadRecord:
        """Return the record as it is shown."""
        key, value = self.content(record.key), self.content(record.value)
        return DecodedRecord(
            record.topic, record.partition, record.offset, record.timestamp, key, value, record.headers
        )

    def columns(self, columns: "Columns") -> "Columns":
        """Return columns of records as they are exported."""
        keys, values = ([*map(self.content, each)] for each in (columns.keys, columns.values))
        return columns._replace(keys=keys, values=values)

    def content(self, content: bytes | None) -> bytes | None:
        """Return JSON, or the content itself where no producer with a registry wrote it, or decoding fails."""
        from pqbroker.registry.undecodable import NOT_FRAMED, Undecodable

        if content is None:
            return None
        try:
            return self._decoder.decode(content).text().encode(errors="backslashreplace")
        except Undecodable as refusal:
            if refusal.code != NOT_FRAMED and refusal.reason not in self._told and len(self._told) < _TOLD_MAX:
                self._told.add(refusal.reason)
                tell(f"records stay as they are: {refusal.reason}")
            return content


_TOLD_MAX = 20
"""Reasons that are printed; a topic may have one for each record."""


def decoder_of(registry: str | None, config: Path | None) -> RecordDecoder | None:
    """Return the decoder of a command's options; None without a registry. WrongInput."""
    if registry is None:
        if config is not None:
            raise WrongInput("--registry-config is for --registry: give the registry's address too")
        return None
    if not registry.startswith(("http://", "https://")) or "@" in registry:
        raise WrongInput("--registry has not the form http[s]://HOST[:PORT][/PATH]; credentials are in a file")
    from pqbroker.registry.properties_file import load_access
    from pqbroker.security.errors import SecurityError

    file = "" if config is None else str(config)
    try:
        load_access(file).context()
    except SecurityError as error:
        raise WrongInput(f"--registry-config: {error}") from None
    return RecordDecoder(NamedRegistry(registry, registry, file))

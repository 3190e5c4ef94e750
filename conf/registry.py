"""Settings of schema registries, and limits of the values that are decoded by their schemas. `broker.BrokerSettings`
lists them."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from pqbroker.conf.declare import Kind, setting

_ADDRESS_FORM = "entries have the form NAME=http[s]://HOST[:PORT][/PATH], without user and password"
_FILE_FORM = "entries have the form NAME=FILE"


def _entries(entries: Iterable[str], form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, text = entry.partition("=")
        if not equals or not text or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise ValueError(form)
        if name in found:
            raise ValueError(f"the name {name!r} stands there twice")
        found[name] = text
    return found


def parse_registries(entries: Iterable[str]) -> dict[str, str]:
    """Addresses by name. ValueError."""
    found = _entries(entries, _ADDRESS_FORM)
    for address in found.values():
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
            raise ValueError(_ADDRESS_FORM)
        _ = parts.port  # ValueError for one that is none
    return found


def parse_config_files(entries: Iterable[str]) -> dict[str, str]:
    """Files by name. ValueError."""
    return _entries(entries, _FILE_FORM)


REGISTRIES = setting(
    "pqbroker.registries", Kind.LIST, (),
    "Schema registries with Confluent's API, as NAME=URL. A topic names one by `value.registry` or `key.registry`, and "
    "its records are shown decoded.", read=parse_registries,
)  # fmt: skip
CONFIG_FILES = setting(
    "pqbroker.registry.config.files", Kind.LIST, (),
    "Files of properties for registries, as NAME=FILE: `basic.auth.user.info` or `bearer.auth.token`, and "
    "`schema.registry.ssl.truststore.location` with what belongs to it.", read=parse_config_files,
)  # fmt: skip
REGISTRY_TIMEOUT_MS = setting(
    "pqbroker.registry.timeout.ms", Kind.INT, 5_000,
    "Time that a registry has to answer all requests for one schema; then records stay raw.", low=1, high=60_000,
)  # fmt: skip
REGISTRY_FAILURE_MS = setting(
    "pqbroker.registry.failure.ms", Kind.INT, 10_000,
    "Time after which the broker asks again for a schema that a registry did not give, and for the latest one.", low=0,
)  # fmt: skip
SCHEMA_BYTES_MAX = setting(
    "pqbroker.registry.schema.bytes.max", Kind.INT, 256 << 10,
    "Bytes of a schema together with those that it refers to; records of a larger one stay raw.",
    low=1024, high=16 << 20,
)  # fmt: skip
SCHEMA_TYPES_MAX = setting(
    "pqbroker.registry.schema.types.max", Kind.INT, 10_000,
    "Types, fields, branches and symbols of a schema together with those that it refers to.", low=10, high=1_000_000,
)  # fmt: skip
VALUE_PARTS_MAX = setting(
    "pqbroker.registry.value.parts.max", Kind.INT, 1_000_000,
    "Fields, elements and entries of one decoded value; one with more stays raw.", low=10, high=100_000_000,
)  # fmt: skip
SCHEMAS_MAX = setting(
    "pqbroker.registry.schemas.max", Kind.INT, 1_000,
    "Schemas and failures of a registry that a worker remembers; the one used longest ago is forgotten first.",
    low=1, high=1_000_000,
)  # fmt: skip
DECODINGS_MAX = setting(
    "pqbroker.registry.decodings.max", Kind.INT, 2,
    "Requests over HTTP whose records are decoded at once, each in a worker process. More wait for "
    "`pqbroker.registry.decoding.ms.max`, then their records stay raw. 0: none is decoded.", low=0, high=64,
)  # fmt: skip
DECODING_MS_MAX = setting(
    "pqbroker.registry.decoding.ms.max", Kind.INT, 10_000,
    "Time that decoding the records of one answer over HTTP may take; records that are left stay raw.", low=1,
)  # fmt: skip

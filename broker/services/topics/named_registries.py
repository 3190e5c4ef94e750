"""The registries that settings name, as topics use them. Nothing here asks one."""

from collections.abc import Iterator
from typing import Any

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.registry import parse_config_files, parse_registries
from pqbroker.pq.serving.topic import Topic


def decoding_of(topic: Topic, settings: BrokerSettings) -> dict[str, Any] | None:
    """Return how keys and values of a topic are decoded, as `registry.decoding.topic_document` makes it; None for a
    topic that names no registry. A name that settings do not have gets an empty address, which is refused by name."""
    config = topic.config
    if not config.key_registry and not config.value_registry:
        return None
    named = {part: name for part, name in (("key", config.key_registry), ("value", config.value_registry)) if name}
    from pqbroker.registry.decoding import topic_document  # loaded with the first topic that names one
    from pqbroker.registry.limits import DecodingLimits
    from pqbroker.registry.named import NamedRegistry

    addresses, files = parse_registries(settings.registries), parse_config_files(settings.registry_config_files)
    limits = DecodingLimits(
        settings.registry_timeout_ms, settings.registry_schema_bytes_max, settings.registry_schema_types_max,
        settings.registry_value_parts_max, settings.registry_schemas_max, settings.registry_failure_ms,
    )  # fmt: skip
    parts = {part: NamedRegistry(name, addresses.get(name, ""), files.get(name, "")) for part, name in named.items()}
    subjects = (("key", config.key_registry_subject), ("value", config.value_registry_subject))
    return topic_document(parts, limits, {part: subject for part, subject in subjects if subject and part in parts})


def wrong_files(settings: BrokerSettings) -> Iterator[str]:
    """Yield what is wrong with the files of registries, which are read again whenever a schema is asked for."""
    names, files = parse_registries(settings.registries), parse_config_files(settings.registry_config_files)
    for name, file in files.items():
        if name not in names:
            yield f"pqbroker.registry.config.files has a file for {name}, which pqbroker.registries does not name"
        from pqbroker.registry.properties_file import load_access
        from pqbroker.security.errors import SecurityError

        try:
            load_access(file).context()
        except SecurityError as error:
            yield f"registry {name}: {error}; its records stay raw until that is mended"

"""Reads broker settings: flag over environment over file over default. Only `__main__` and the CLI import this.

Files have the form of Kafka's `.properties`. An environment variable's name is the setting's in upper case with dots as
underscores, under `PQBROKER_`: PQBROKER_NODE_ID is node.id, PQBROKER_DURABILITY is pqbroker.durability.
"""

import difflib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, declarations, declared, superseded
from pqbroker.security.properties import read_properties

log = logging.getLogger(__name__)

Entry = tuple[str, str, str]
"""Place, name and text of a setting as it was given."""

ENVIRONMENT_PREFIX = "PQBROKER_"
_OWN_PREFIX = "pqbroker."
_FOREIGN = re.compile(
    r"(SERVICE_|PORT$|PORT_|(SPARK|KAFKA)_JARS$|BROKER$|HTTP$|COMMAND_CONFIG$|PROFILE$|DATA_DIR$|LISTEN_(KAFKA|HTTP)$|"
    r"USER$|(PASSWORD|NEW_PASSWORD|TOKEN)(_FILE)?$)"
)
"""No settings: Kubernetes' for a service called pqbroker, the places of jars, where commands find their broker, the
security of its connection and its user, and where the node itself is (`broker.node.locations`)."""


def read_texts(
    config_file: Path | None, environment: Mapping[str, str], assignments: Sequence[str] = ()
) -> dict[str, str]:
    """Return the node's settings, by name, each checked; `assignments` are NAME=VALUE, the last for a name wins.

    Raises ConfigError, which names the place (file and line, variable, flag), the cause and the cure.
    """
    entries = [] if config_file is None else [*_from_file(config_file)]
    entries += _from_environment(environment)
    entries += map(_from_assignment, assignments)
    places: dict[str, str] = {}
    texts: dict[str, str] = {}
    for place, name, text in entries:
        _check(place, name, text)
        places[name], texts[name] = place, text
    _tell_earlier_names(places)
    return texts


def environment_name(name: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT_PREFIX + name.removeprefix(_OWN_PREFIX).upper().replace(".", "_")


def _from_file(path: Path) -> Iterator[Entry]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the config file {path} is not UTF-8 at byte {error.start}") from None
    return ((f"{path}:{line}", name, value) for line, name, value in read_properties(text))


def _from_environment(environment: Mapping[str, str]) -> Iterator[Entry]:
    names = {environment_name(name): name for one in declarations(BrokerSettings).values() for name in one.names}
    for variable, text in environment.items():
        own = variable.removeprefix(ENVIRONMENT_PREFIX)
        if own != variable and not _FOREIGN.match(own):
            yield f"environment variable {variable}", names.get(variable, own.lower().replace("_", ".")), text


def _from_assignment(assignment: str) -> Entry:
    name, equals, text = assignment.partition("=")
    if not equals:
        raise ConfigError(f"--set {assignment}: give NAME=VALUE")
    return f"--set {assignment}", name.strip(), text


def _check(place: str, name: str, text: str) -> None:
    """ConfigError, with the place, for an unknown name or a value that cannot be set."""
    declaration = declared(BrokerSettings, name)
    if declaration is None:
        near = difflib.get_close_matches(name, declarations(BrokerSettings), n=1)
        hint = f"did you mean {near[0]}?" if near else "docs/settings.md lists the settings"
        raise ConfigError(f"{place}: unknown setting {name}; {hint}")
    try:
        declaration.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def _tell_earlier_names(places: Mapping[str, str]) -> None:
    """Log a line for each setting that was given by its earlier name: places by name as given."""
    ignored = superseded(BrokerSettings, places)
    for earlier, place in places.items():
        declaration = declared(BrokerSettings, earlier)
        if declaration is None or declaration.earlier != earlier:
            continue
        name = declaration.name
        if earlier in ignored:
            log.warning("%s: %s is ignored: %s, its name now, is set too (%s)", place, earlier, name, places[name])
        else:
            log.warning("%s: %s is now called %s; the next version accepts that name alone", place, earlier, name)

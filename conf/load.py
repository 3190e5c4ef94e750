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

log = logging.getLogger(__name__)

Entry = tuple[str, str, str]
"""Place, name and text of a setting as it was given."""

ENVIRONMENT_PREFIX = "PQBROKER_"
_OWN_PREFIX = "pqbroker."
_FOREIGN = re.compile(r"(SERVICE_|PORT$|PORT_|(SPARK|KAFKA)_JARS$|BROKER$|HTTP$|DATA_DIR$|LISTEN_(KAFKA|HTTP)$)")
"""No settings: Kubernetes' for a service called pqbroker, the places of jars, where commands find their broker,
and where the node itself is (`broker.node.places`)."""

_LINE_END = re.compile(r"\r\n|\n|\r")
_SEPARATOR = re.compile(r"[ \t\f]*[=:][ \t\f]*|[ \t\f]+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)


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


def read_properties(text: str) -> Iterator[tuple[int, str, str]]:
    """Line number, name and value of every entry, in order, by the rules of Java's Properties.load."""
    for line, entry in _logical_lines(text):
        key = _KEY.match(entry)
        assert key is not None
        rest = entry[key.end() :]
        separator = _SEPARATOR.match(rest)
        yield line, _unescape(key.group()), _unescape(rest[separator.end() :] if separator else "")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments and blank ones; a line that ends in an odd number of backslashes continues in the
    next."""
    lines = enumerate(_LINE_END.split(text), start=1)
    for number, line in lines:
        entry = line.lstrip(" \t\f")
        if not entry or entry[0] in "#!":
            continue
        while (len(entry) - len(entry.rstrip("\\"))) % 2 == 1:
            entry = entry[:-1] + next(lines, (0, ""))[1].lstrip(" \t\f")
        yield number, entry


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPED.get(match[2], match[2]), text)


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

"""Times of groups of the consumer protocol (KIP-848): what a group sets, within the bounds of the node."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, declarations
from pqbroker.conf.named_resources import GroupConfig


class _Time(NamedTuple):
    """One time: its name as a group's config; under group. it is the node's default, with min and max its bounds."""

    name: str

    @property
    def of_node(self) -> str:
        return f"group.{self.name}"

    def bound(self, which: str) -> str:
        """Return the name of the node's setting; `which`: min or max."""
        return f"group.consumer.{which}.{self.name.removeprefix('consumer.')}"

    def default(self, node: BrokerSettings) -> int:
        return _value(self.of_node, node)

    def bounds(self, node: BrokerSettings) -> tuple[int, int]:
        return _value(self.bound("min"), node), _value(self.bound("max"), node)


_SESSION: Final = _Time("consumer.session.timeout.ms")
_HEARTBEAT: Final = _Time("consumer.heartbeat.interval.ms")
_ASSIGNMENT: Final = _Time("consumer.assignment.interval.ms")
_TIMES: Final = (_SESSION, _HEARTBEAT, _ASSIGNMENT)


class GroupTimes(NamedTuple):
    """Times of one group, in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def check_group_times(texts: Mapping[str, str], stored: Mapping[str, str], node: BrokerSettings) -> None:
    """Check that a group which is set to `stored` can be set to `texts`. ConfigError.

    Texts that do not change may be invalid: otherwise, of two invalid ones, neither could be corrected.
    """
    changed = [time for time in _TIMES if texts.get(time.name) != stored.get(time.name)]
    for time in changed:
        least, most = time.bounds(node)
        value = _in_texts(time, texts)
        if value is not None and value < least:
            raise ConfigError(f"{time.name} must be greater than or equal to {time.bound('min')}: {value} < {least}")
        if value is not None and value > most:
            raise ConfigError(f"{time.name} must be less than or equal to {time.bound('max')}: {value} > {most}")
    if {_SESSION, _HEARTBEAT}.isdisjoint(changed):
        return
    session, heartbeat = (_in_texts(time, texts) or time.default(node) for time in (_SESSION, _HEARTBEAT))
    if session <= heartbeat:
        raise ConfigError(f"{_SESSION.name} must be greater than {_HEARTBEAT.name}: {session} <= {heartbeat}")


def group_times(texts: Mapping[str, str], node: BrokerSettings) -> GroupTimes:
    """Return the times in force for a group that is set to `texts`: bounds that have moved since then limit them, and
    an invalid text leaves the node's in force."""
    return GroupTimes(*(_in_force(time, texts, node) for time in _TIMES))


def check_consumer_settings(node: BrokerSettings) -> None:
    """Check that the node's own times are within its bounds, and that it has an assignor. ConfigError."""
    if not node.group_consumer_assignors:
        raise ConfigError("group.consumer.assignors is empty; name one, such as uniform")
    for time in _TIMES:
        least, most = time.bounds(node)
        if least > most:
            raise ConfigError(f"{time.bound('min')} is {least}, more than {time.bound('max')}, {most}")
        default = time.default(node)
        if not least <= default <= most:
            raise ConfigError(
                f"{time.of_node} is {default}; it must be from {time.bound('min')}, {least}, to {time.bound('max')}, "
                f"{most}"
            )
    session, heartbeat = _SESSION.default(node), _HEARTBEAT.default(node)
    if session <= heartbeat:
        raise ConfigError(f"{_SESSION.of_node} is {session}; it must be more than {_HEARTBEAT.of_node}, {heartbeat}")


def _in_force(time: _Time, texts: Mapping[str, str], node: BrokerSettings) -> int:
    try:
        value = _in_texts(time, texts)
    except ConfigError:
        value = None
    if value is None:
        return time.default(node)
    least, most = time.bounds(node)
    return max(least, min(value, most))


def _in_texts(time: _Time, texts: Mapping[str, str]) -> int | None:
    text = texts.get(time.name)
    return None if text is None else int(declarations(GroupConfig)[time.name].parse(text))


def _value(name: str, node: BrokerSettings) -> int:
    return int(declarations(BrokerSettings)[name].value_in(node))

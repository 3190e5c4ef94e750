"""Settings of this node now: those of its start, and what was changed since, kept in the scheme (KIP-226)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from pqbroker.broker.services.configs.operations import Change, Operation, Texts, apply_change
from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.declare import ConfigError, Effect, Kind, declarations, declared
from pqbroker.conf.defaults import check_size
from pqbroker.conf.dynamic import BY_LISTENER, Layers, is_dynamic, is_of_one_node, layers, wrong_settings
from pqbroker.protocol.errors import ErrorCode, KafkaError
from pqbroker.storage.uninterrupted import uninterrupted

log = logging.getLogger(__name__)

Check = Callable[[BrokerSettings], Awaitable[None]]
EVERY_NODE = ""
"""Kafka's name for what all nodes are set to."""
_POLICY = "log.cleanup.policy"


class NodeSettings:
    """Settings of one opening of the cell. `stored`: what nodes were set to, by name; an invalid text is logged with
    its cure.

    `keep` makes the texts under a name durable, then puts the settings in force.
    """

    def __init__(
        self,
        at_start: BrokerSettings,
        stored: Mapping[str, Texts],
        keep: Callable[[str, Texts, BrokerSettings], Awaitable[None]],
        nodes: Sequence[int] = (),
    ) -> None:
        """`nodes`: ids of all nodes of a broker with several, whose settings may be changed here."""
        self._at_start = at_start
        self._stored = dict(stored)
        self._keep = keep
        self._changes = asyncio.Lock()
        self._name = str(at_start.node_id)
        self._others = {str(node) for node in nodes} - {self._name}
        self.layers = layers_of(at_start, stored)
        self._tell_wrong()

    @property
    def in_force(self) -> BrokerSettings:
        return self.layers.in_force

    async def alter(
        self, name: str, changes: list[Change], check: Check, *, replaces: bool, validate_only: bool
    ) -> None:
        """Change what this node is set to, or every node (`name` is empty); durable and in force when it returns.

        `check` is asked about the settings before they are kept: ConfigError.

        KafkaError 40, 42, with Kafka's texts where it has one. `replaces`: what was set and is not named goes. What has
        begun is made whole even if the caller is cancelled: durable and not in force is no state to be in.
        """
        if name not in self._others:
            check_node_name(name, self._name)
        check_dynamic(name, changes)
        await uninterrupted(self._alter(name, changes, check, replaces=replaces, validate_only=validate_only))

    async def follow(
        self, stored: Mapping[str, Texts], use: Callable[[BrokerSettings], Awaitable[None]]
    ) -> bool:
        """Take what another node has changed in the scheme, and return True if anything was; `use` has it be in
        force."""
        async with self._changes:
            if stored == self._stored:
                return False
            found = layers_of(self._at_start, stored)
            await use(found.in_force)
            self._stored, self.layers = dict(stored), found
            return True

    async def _alter(
        self, name: str, changes: list[Change], check: Check, *, replaces: bool, validate_only: bool
    ) -> None:
        async with self._changes:
            stored = dict(self._stored.get(name, {}))
            try:
                texts = self._changed({} if replaces else stored, changes)
                check_size(texts, stored, self.in_force)
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
            # What is not new may be wrong: else of two wrong texts none could be mended.
            wrong = wrong_settings({each: text for each, text in texts.items() if stored.get(each) != text})
            if wrong:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "; ".join(wrong.values()))
            found = layers_of(self._at_start, {**self._stored, name: texts})
            try:
                await check(found.in_force)
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
            if validate_only or texts == stored:
                return
            await self._keep(name, texts, found.in_force)
            self._stored[name], self.layers = texts, found
            log.info("%s: settings changed to %s", _node_text(name), _without_secrets(texts))
            _tell_in_vain(name, {each: text for each, text in texts.items() if stored.get(each) != text})

    def _tell_wrong(self) -> None:
        for name in (EVERY_NODE, self._name):
            for cause in wrong_settings(self._stored.get(name, {})).values():
                log.error(
                    "%s: %s; the value at the start is in force, but records are kept for ever where it says how "
                    "long. Set it again or delete it (kafka-configs --alter), or run the version that accepted it",
                    _node_text(name),
                    cause,
                )

    def _changed(self, stored: Texts, changes: list[Change]) -> Texts:
        texts = dict(stored)
        for change in changes:
            declaration = declared(BrokerSettings, change.name)
            if declaration is None:
                texts.pop(change.name, None)  # another version took it, and it does nothing here
                continue
            apply_change(texts, change, declaration, partial(declaration.value_in, self.in_force))
        return texts


def layers_of(at_start: BrokerSettings, stored: Mapping[str, Texts]) -> Layers:
    """Return the settings of the node that was started so; `stored`: what nodes were set to since, by name."""
    return layers(at_start, stored.get(EVERY_NODE, {}), stored.get(str(at_start.node_id), {}))


def _without_secrets(texts: Texts) -> dict[str, str]:
    """Return texts for the log. One of an unknown setting may be a secret of another version."""
    known = {name: declared(BrokerSettings, name) for name in texts}
    hidden = {name for name, one in known.items() if one is None or one.kind is Kind.PASSWORD}
    return {name: "[hidden]" if name in hidden else text for name, text in texts.items()}


def _node_text(name: str) -> str:
    return f"node {name}" if name else "every node"


def _tell_in_vain(name: str, changed: Texts) -> None:
    known = declarations(BrokerSettings)
    in_vain = sorted(each for each in changed if each in known and known[each].effect is Effect.NONE)
    if in_vain:
        log.warning("%s: set without effect in this broker: %s", _node_text(name), ", ".join(in_vain))


def check_node_name(name: str, node_id: str) -> None:
    """Check that a request sets this node or all nodes: KafkaError INVALID_REQUEST, in Kafka's words."""
    if name in (EVERY_NODE, node_id):
        return
    if not name.removeprefix("-").isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
    )


def check_dynamic(node: str, changes: list[Change]) -> None:
    """KafkaError INVALID_CONFIG for what no node has, INVALID_REQUEST for what cannot change while a node runs.

    Anything can be deleted, known or not: what is not set stays so, as in Kafka.
    """
    given = [name for name, operation, _ in changes if operation != Operation.DELETE]
    unknown = sorted(name for name in given if declared(BrokerSettings, name) is None)
    if unknown:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{', '.join(unknown)} is no setting of a broker")
    of_listeners = sorted(name for name in given if name in BY_LISTENER)
    if of_listeners:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the listener prefix "
            f"(listener.name.NAME.): [{', '.join(of_listeners)}]",
        )
    fixed = sorted(name for name in given if not is_dynamic(name))
    if fixed:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: [{', '.join(fixed)}]; set them at the node's start, by a flag "
            "(--set NAME=VALUE), the environment or its file",
        )
    of_one = sorted(name for name in given if is_of_one_node(name))
    if of_one and node == EVERY_NODE:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(of_one)}]",
        )

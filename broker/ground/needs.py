"""Rights that a request needs, as a table says them: for documents, and for users who write access rules. What is
checked stands where it is done; tests hold the two against each other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pqbroker.broker.ground.access import AclKind, AclOperation

_KINDS: Final[Mapping[AclKind, str]] = {
    AclKind.TOPIC: "topic", AclKind.GROUP: "group", AclKind.CLUSTER: "cluster",
    AclKind.TRANSACTIONAL_ID: "transactional id",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Need:
    """One right. `note`: when it is needed, and what else will do; empty: always."""

    operation: AclOperation
    kind: AclKind
    note: str = ""

    def __str__(self) -> str:
        words = self.operation.name.title().replace("_", "")
        return f"{words} on {_KINDS[self.kind]}" + (f" ({self.note})" if self.note else "")


def written(needs: Iterable[Need]) -> str:
    """Return the rights as one text."""
    return "; ".join(map(str, needs)) or "nothing"


def on_topic(operation: AclOperation, note: str = "") -> Need:
    return Need(operation, AclKind.TOPIC, note)


def on_group(operation: AclOperation, note: str = "") -> Need:
    return Need(operation, AclKind.GROUP, note)


def on_cluster(operation: AclOperation, note: str = "") -> Need:
    return Need(operation, AclKind.CLUSTER, note)


def on_transactional_id(operation: AclOperation, note: str = "") -> Need:
    return Need(operation, AclKind.TRANSACTIONAL_ID, note)

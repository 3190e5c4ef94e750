"""One member of a group, in memory."""

from dataclasses import dataclass

from pqbroker.broker.services.coordination.classic.memory import member_bytes
from pqbroker.broker.services.coordination.classic.messages import Join, JoinedMember, Ticket
from pqbroker.storage.tablets.coordinator_rows import MemberImage, MemberProtocol


@dataclass(slots=True, eq=False)
class Member:
    """Alive while it waits in a Join or Sync, or until `deadline_ms`; one that is new, until `deadline_ms` only."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    deadline_ms: int = 0
    is_new: bool = False
    """True from its first join until the answer; until then a client that is gone cannot be told from one that
    waits."""
    join_ticket: Ticket = None
    sync_ticket: Ticket = None
    counted_bytes: int = 0
    """Bytes that the group counts for the member, without its assignment, which is counted apart."""

    @classmethod
    def joining(cls, member_id: str, request: Join) -> "Member":
        return cls(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
            is_new=True,
        )

    @classmethod
    def stored(cls, image: MemberImage) -> "Member":
        return cls(
            member_id=image.member_id,
            instance_id=image.instance_id,
            client_id=image.client_id,
            client_host=image.client_host,
            session_timeout_ms=image.session_timeout_ms,
            rebalance_timeout_ms=image.rebalance_timeout_ms,
            protocols=image.protocols,
            assignment=image.assignment,
        )

    @property
    def has_joined(self) -> bool:
        return self.join_ticket is not None

    @property
    def is_timed(self) -> bool:
        """Return True if the deadline counts: not while a request of a known member waits here (clients 4.33)."""
        return self.is_new or (self.join_ticket is None and self.sync_ticket is None)

    def renew(self, now_ms: int) -> None:
        """Extend the session, after a request or an answer."""
        self.is_new = False
        self.deadline_ms = now_ms + self.session_timeout_ms

    @property
    def metadata_bytes(self) -> int:
        return member_bytes((self.member_id, self.instance_id, self.client_id, self.client_host), self.protocols)

    def metadata(self, protocol: str | None) -> bytes:
        return next((offered.metadata for offered in self.protocols if offered.name == protocol), b"")

    def described(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol))

    def image(self, assignment: bytes) -> MemberImage:
        return MemberImage(
            self.member_id, self.instance_id, self.client_id, self.client_host, self.session_timeout_ms,
            self.rebalance_timeout_ms, self.protocols, assignment,
        )  # fmt: skip

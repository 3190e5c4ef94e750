"""The protocols that the members of a group offer: which of them all share, and which most like best."""

from collections import Counter
from collections.abc import Collection, Iterable

from pqbroker.broker.services.coordination.classic.member import Member
from pqbroker.storage.tablets.coordinator_rows import MemberProtocol


class Offers:
    """The number of members that offer each protocol; a member that names one twice offers it once."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: Counter[str] = Counter()

    def add(self, protocols: Iterable[MemberProtocol]) -> None:
        self._members.update({offered.name for offered in protocols})

    def take_back(self, protocols: Iterable[MemberProtocol]) -> None:
        for name in {offered.name for offered in protocols}:
            self._members[name] -= 1
            if not self._members[name]:
                del self._members[name]

    def is_shared(self, protocol: str, members: int) -> bool:
        """Return True if as many members offer the protocol as the group has."""
        return self._members[protocol] == members

    def choose(self, members: Collection[Member]) -> str:
        """The protocol, of those that all offer, that most members like best."""
        votes = Counter(
            next(offered.name for offered in member.protocols if self.is_shared(offered.name, len(members)))
            for member in members
        )
        return votes.most_common(1)[0][0]

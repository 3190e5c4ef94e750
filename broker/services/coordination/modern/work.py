"""A target that is being worked out, step by step."""

from dataclasses import dataclass, field

from pqbroker.broker.services.coordination.assigning.assignor import Assigning, Assignment


@dataclass(slots=True, eq=False)
class TargetWork:
    """A target of an epoch: the group may have moved on before it is ready."""

    epoch: int
    steps: Assigning
    replaced: dict[str, str] = field(default_factory=dict)
    """Ids that the work knows, by the new ids of static members that came back meanwhile."""
    target: dict[str, Assignment] | None = None
    """The target, once it is ready."""

    def step(self) -> bool:
        """Take one step, well below a millisecond. Return True if the target is ready."""
        try:
            next(self.steps)
        except StopIteration as done:
            self.target = done.value
            return True
        return False

    def replace(self, member_id: str, new_id: str) -> None:
        """Note that a static member has another id from now on."""
        self.replaced[new_id] = self.replaced.pop(member_id, member_id)

    def of(self, member_id: str) -> Assignment:
        """Return what a member is to have; nothing for one that has joined since the work began."""
        assert self.target is not None
        return self.target.get(self.replaced.get(member_id, member_id), {})

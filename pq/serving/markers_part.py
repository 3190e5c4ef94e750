"""Markers that end Kafka transactions in one partition as a part of a commit over several tablets, which ends them
everywhere at once. Those of a partition that cannot take part come behind the decision (`end_markers.py`)."""

from collections.abc import Callable, Sequence

from pqbroker.pq.log.blob_cycles import plan_markers
from pqbroker.pq.log.write_cycle import Cycle
from pqbroker.pq.serving.end_markers import MARKERS_AT_ONCE
from pqbroker.pq.serving.joint_cycle import JointCycle
from pqbroker.pq.serving.partition_server import PartitionServer
from pqbroker.pq.serving.partition_transactions import PartitionTransactions
from pqbroker.pq.transactions.participants import OnTurn
from pqbroker.pq.transactions.stored_forms import PreparedHead
from pqbroker.protocol.control_records import MARKER_BYTES_MAX, EndMarker
from pqbroker.protocol.errors import KafkaError
from pqbroker.storage.kv.commands import Command
from pqbroker.storage.kv.joint_request import TabletCommands
from pqbroker.storage.outcome import Outcome


class MarkersPart:
    """Markers of several transactions as a `CommitPart`: as those of `EndMarkers` they pass limits, mount states and a
    full disk. One of an epoch that is over here is left out: the transaction has ended already."""

    __slots__ = ("_is_holding", "_markers", "_place", "_server", "refused")

    row_count = 0

    def __init__(self, server: PartitionServer, markers: Sequence[EndMarker], clock: Callable[[], int]) -> None:
        assert 0 < len(markers) <= MARKERS_AT_ONCE, "a part has markers, as many as a cycle takes"
        self._server = server
        self._markers = markers
        self._is_holding = False
        self._place = JointCycle(server, self._plan, clock)
        self.refused: list[KafkaError] = []
        """Refusals of markers that were left out."""

    @property
    def participant(self) -> PartitionTransactions:
        return self._server.transactions

    @property
    def is_holding(self) -> bool:
        """Return True once the part's turn has come."""
        return self._is_holding

    async def look_ahead(self) -> None:
        """Look at nothing: a marker has no conflicts."""

    def enter(self, turn: OnTurn) -> None:
        self._place.enter(turn, decided_bytes=len(self._markers) * MARKER_BYTES_MAX)

    async def examine(self) -> None:
        """Look at nothing: its turn has checked the epochs."""

    def refusal(self) -> BaseException | None:
        return self._place.refusal()

    async def encode(self, timestamp: int | None) -> None:
        """Make nothing ready: the plan did."""

    def commands(self, timestamp: int | None) -> Sequence[Command]:
        assert timestamp is not None, "markers are written beside the decision"
        return self._place.commands()

    def beside(self) -> Sequence[TabletCommands]:
        return ()

    def prepares(self, head: PreparedHead) -> None:
        raise AssertionError("markers are not prepared: a partition elsewhere gets its own behind the decision")

    def told(self, error: BaseException | None) -> Outcome[None]:
        return self._place.told(error)

    def leave(self) -> None:
        self._place.leave()

    def _plan(self, now_ms: int) -> Cycle:
        self._is_holding = True
        cycle = plan_markers(self._server.state, self._markers, now_ms)
        self.refused = [outcome for outcome in cycle.outcomes if isinstance(outcome, KafkaError)]
        cycle.outcomes = []
        return cycle

"""Plays every case against both brokers and compares their answers."""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from pqbroker.testing import broker
from tests.kafka_comparison import scripts
from tests.kafka_comparison.differences import Difference, Listed, compared, listed
from tests.kafka_comparison.recorded import Played
from tests.kafka_comparison.rendering import Facts
from tests.kafka_comparison.shapes import Case, cases
from tests.kafka_comparison.side import NotAnsweredError, Side
from tests.support.kafka.broker import ApacheKafka

OURS: Final = {
    "node.id": "1", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1",
    "log.retention.ms": "-1", "group.consumer.assignment.interval.ms": "0",
}  # fmt: skip
"""Records have times of years ago, the same in each run: they must not expire."""
THEIRS: Final = {
    "offsets.topic.num.partitions": "1", "log.retention.ms": "-1", "group.consumer.assignment.interval.ms": "0",
}  # fmt: skip
SETTLE_S: Final = 0.02
_BROKEN_OFF: Final = "broken off"
PATIENT_S: Final = 0.2
"""How long a case waits for Kafka's metadata when it is played a second time, since its answers differed."""



@dataclass(slots=True)
class Outcome:
    """What a run came to."""

    listed: int = 0
    """Answers that differ in what is listed alone."""
    unlisted: list[Difference] = field(default_factory=list)
    used: set[Listed] = field(default_factory=set)
    by_api: dict[str, list[int]] = field(default_factory=dict)
    """Answers, and those that are the same, of each API."""
    theirs: list[tuple[Case, Played]] = field(default_factory=list)

    @property
    def answers(self) -> int:
        """How many answers were compared."""
        return sum(answers for answers, _ in self.by_api.values())

    @property
    def same(self) -> int:
        """How many of them were the same."""
        return sum(same for _, same in self.by_api.values())


def chosen(pattern: str = "") -> list[Case]:
    """Return the cases whose API, version and shape match a regular expression."""
    for module in pkgutil.iter_modules(scripts.__path__, scripts.__name__ + "."):
        importlib.import_module(module.name)
    wanted = re.compile(pattern)
    return [case for case in cases() if wanted.search(f"{case.api.name} v{case.version} {case.shape}")]


def run(every: Sequence[Case], heap: str = "512m", report: Callable[[str], None] = print) -> Outcome:
    """Start both brokers, play the cases and return what came of them."""
    outcome = Outcome()
    with broker(settings=OURS) as ours, ApacheKafka(properties=THEIRS, heap=heap) as theirs:
        sides = made_side(ours.kafka), made_side(theirs.kafka)
        with ThreadPoolExecutor(2) as pool:
            for number, case in enumerate(every):
                _compare(case, sides, pool, outcome)
                if number % 500 == 499:
                    report(f"{number + 1} of {len(every)} cases, {len(outcome.unlisted)} differences unlisted")
    return outcome


def made_side(address: str) -> Side:
    """Return a broker to play cases on, with what they share."""
    side = Side(address, Facts(port=int(address.rpartition(":")[2])))
    side.share()
    side.end()
    return side


def _compare(case: Case, sides: tuple[Side, Side], pool: ThreadPoolExecutor, outcome: Outcome) -> None:
    """Play a case, twice where its answers differ in what the list does not have: Kafka shows some changes late."""
    ours, theirs = pool.map(lambda side: play(case, side), sides)
    if not all(covering(each) for each in differences(case, ours, theirs)):
        ours, theirs = pool.map(lambda side: play(case, side, PATIENT_S), sides)
    outcome.theirs.append((case, theirs))
    counts = outcome.by_api.setdefault(case.api.name, [0, 0])
    for our, their in zip(ours, theirs, strict=False):
        found = list(differences(case, [our], [their]))
        unlisted = [each for each in found if covering(each) is None]
        counts[0] += 1
        counts[1] += not found
        outcome.used.update(line for line in map(covering, found) if line)
        outcome.unlisted += unlisted
        outcome.listed += bool(found) and not unlisted


def play(case: Case, side: Side, settle_s: float = SETTLE_S) -> Played:
    """Play a case on one side and return its answers."""
    side.begin(case.name, case.version, settle_s)
    try:
        case.play(side)
    except NotAnsweredError as error:
        side.answers.append((_BROKEN_OFF, {"": str(error)}))
    finally:
        side.end()
    return side.answers


def differences(case: Case, ours: Played, theirs: Played) -> Iterator[Difference]:
    """Yield what differs in the answers to a case."""
    for (label, our), (_, their) in zip(ours, theirs, strict=False):
        shape = f"{case.shape}/{label}" if label else case.shape
        yield from compared(case.api.name, case.version, shape, our, their)
    for label, answer in [*ours, *theirs]:
        if label == _BROKEN_OFF:
            yield Difference(case.api.name, case.version, case.shape, label, answer[""], answer[""])


_lines: list[Listed] = []


def covering(difference: Difference) -> Listed | None:
    """Return the line of the list that a difference has."""
    if not _lines:
        _lines.extend(listed())
    return next((line for line in _lines if line.covers(difference)), None)

"""The comparison of access rules from the command line: python -m tests.kafka_comparison.access [SCENARIO...]

It plays every scenario on Apache Kafka with StandardAuthorizer and on this broker, writes Kafka's answers for `./test`,
and ends with status 1 where an answer differs that `differences.tsv` does not have.
"""

import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from pqbroker.testing import broker
from tests.kafka_comparison.access import recorded
from tests.kafka_comparison.access.playing import SETTINGS, made_side, play, unlisted
from tests.kafka_comparison.access.scenarios import scenarios
from tests.kafka_comparison.run import OURS, THEIRS
from tests.support.kafka.broker import ApacheKafka


def main() -> None:
    started, answers = time.monotonic(), 0
    different: Counter[str] = Counter()
    theirs_all = {}
    settings = {**THEIRS, **SETTINGS}
    chosen = [scenario for scenario in scenarios() if not sys.argv[1:] or scenario.name in sys.argv[1:]]
    with broker(settings={**OURS, **SETTINGS}) as ours, ApacheKafka(properties=settings, heap="512m") as theirs:
        sides = made_side(ours.kafka), made_side(theirs.kafka)
        with ThreadPoolExecutor(2) as pool:
            for scenario in chosen:
                our, their = pool.map(lambda side, scenario=scenario: list(play(side, scenario)), sides)
                theirs_all[scenario.name] = {name: answer for name, _, answer in their}
                answers += len(our)
                for (name, version, ours_said), (_, _, theirs_said) in zip(our, their, strict=True):
                    for each in unlisted(name, version, ours_said, theirs_said):
                        different[f"{name}\t{each.field}\t{each.ours}\t{each.theirs}\t"] += 1
                        print(scenario.name, each, sep="\t", flush=True)
        for side in sides:
            side.close()
    for line, count in different.most_common():
        print(f"{count} times: {line}")
    if not sys.argv[1:]:
        recorded.write(theirs_all)
    print(f"{answers} answers, {sum(different.values())} different and not listed, {time.monotonic() - started:.0f} s")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()

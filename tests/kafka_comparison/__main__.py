"""The comparison from the command line: python -m tests.kafka_comparison

It ends with status 1 where an answer differs that `differences.tsv` does not have, or a line of it has no use. A run of
everything without such an answer writes docs/kafka-comparison.md and Kafka's answers for `./test`.
"""

import argparse
import re
import time
from collections.abc import Iterator
from typing import Final

from tests.kafka_comparison import page, recorded
from tests.kafka_comparison.differences import Difference, listed
from tests.kafka_comparison.run import chosen, run

_SHAPES_SHOWN: Final = 4


def main() -> None:
    """Run the comparison and print what differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka_comparison", description=__doc__)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose `API vVERSION shape` matches")
    options = parser.parse_args()
    every = chosen(options.only)
    started = time.monotonic()
    outcome = run(every)
    for kind in grouped(outcome.unlisted):
        print(kind)
    unused = [] if options.only else [line for line in listed() if line not in outcome.used]
    for line in unused:
        print(f"no answer needs the line {line}")
    print(
        f"{len(every)} cases, {outcome.answers} answers, {outcome.same} the same, {outcome.listed} different as listed,"
        f" {len(outcome.unlisted)} fields different and not listed, {time.monotonic() - started:.0f} s"
    )
    if not options.only and not outcome.unlisted:
        recorded.write(outcome.theirs)
        page.write_counts(time.strftime("%d %B %Y"), outcome.by_api)
        page.PAGE.write_text(page.page(), encoding="utf-8")
    parser.exit(1 if outcome.unlisted or unused else 0)


def grouped(differences: list[Difference]) -> Iterator[str]:
    """Yield a line for each kind of difference: what is alike but for version, shape and the names in the path."""
    kinds: dict[tuple[str, ...], list[Difference]] = {}
    for each in differences:
        names = re.compile(rf"{each.api}-v\d+[^\]]*")
        kinds.setdefault((each.api, names.sub("NAME", each.field), each.ours, each.theirs), []).append(each)
    for (api, field, ours, theirs), found in kinds.items():
        versions = sorted({each.version for each in found})
        shapes = list(dict.fromkeys(each.shape for each in found))
        shown = ", ".join(shapes[:_SHAPES_SHOWN])
        if len(shapes) > _SHAPES_SHOWN:
            shown += f" and {len(shapes) - _SHAPES_SHOWN} more"
        yield f"{api} v{versions[0]}-{versions[-1]}\t{field}\t{ours}\t{theirs}\t{shown}"


if __name__ == "__main__":
    main()

"""Scripts of produced batches for compacted topics. Each stage of a script is cleaned before the next one is written.

Times of records are the script's own: a stage begins with a batch that is so much later than those before that Kafka
rolls its segment, and cleans what lies behind it.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pqbroker.protocol.records import Record

T0_MS: Final = 1_600_000_000_000
STAGE_MS: Final = 3_600_000
"""Time between the beginnings of stages: longer than `segment.ms`."""
SEGMENT_MS: Final = 600_000
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS: Final = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
HOSTILE_KEYS: Final = (b"", b"a", b"ab", b"a\0", b"\0", b"k" * 15, b"k" * 16, b"k" * 17, b"k" * 48)
DRAWN: Final = range(8)
"""Random scripts whose logs of Kafka's are kept."""
DRAWN_STAGES: Final = 5
FILLER: Final = b"filler " * 20

LATER: Final = {"delete.retention.ms": "86400000"}
AT_ONCE: Final = {"delete.retention.ms": "0"}

Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch to be produced: keys with their values, None: a tombstone."""

    pairs: Sequence[Pair]
    codec: int = NONE
    producer: int = -1
    """Number of an idempotent producer within the script; -1: none."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    is_reversed: bool = False
    """True: the times of its records go down."""

    def records(self, first_ms: int) -> list[Record]:
        """Return its records, ten milliseconds apart."""
        times = [first_ms + 10 * number for number in range(len(self.pairs))]
        if self.is_reversed:
            times.reverse()
        pairs = zip(times, self.pairs, strict=True)
        return [Record(0, time_ms, key, value, self.headers) for time_ms, (key, value) in pairs]


@dataclass(frozen=True, slots=True)
class Trim:
    """Records below an offset are to be deleted."""

    offset: int


@dataclass(frozen=True, slots=True)
class Again:
    """A batch of an idempotent producer is sent once more, as after a lost answer. `number`: that of the batch among
    the producer's."""

    producer: int
    number: int


Step = Batch | Trim | Again


@dataclass(frozen=True, slots=True)
class Script:
    """Stages of steps, and configs of the topic."""

    stages: Sequence[Sequence[Step]]
    configs: Mapping[str, str] = field(default_factory=dict)


def one(key: bytes | None, value: bytes | None) -> Batch:
    """Return a batch of one record."""
    return Batch([(key, value)])


def values(*keys: bytes, codec: int = NONE, producer: int = -1) -> Batch:
    """Return a batch with a value for each key."""
    return Batch([(key, key + FILLER) for key in keys], codec, producer)


def tombstones(*keys: bytes, codec: int = NONE) -> Batch:
    """Return a batch of tombstones."""
    return Batch([(key, None) for key in keys], codec)


def drawn(seed: int) -> Script:
    """Return a script of random steps with hostile keys."""
    source = random.Random(seed)
    keys = [*HOSTILE_KEYS, *(b"x%d" % number for number in range(source.choice((0, 5, 40))))]
    configs = dict(source.choice((LATER, LATER, AT_ONCE)))
    if source.random() < 0.4:
        configs["cleanup.policy"] = "compact,delete"
    stages: list[list[Step]] = []
    written = sent = 0
    for _ in range(DRAWN_STAGES):
        steps: list[Step] = []
        for _ in range(source.randint(1, 14)):
            chance = source.random()
            if chance < 0.1 and written and "cleanup.policy" in configs:
                steps.append(Trim(source.randrange(written)))
            elif chance < 0.15 and sent:
                steps.append(Again(0, source.randrange(sent)))
            else:
                steps.append(batch := drawn_batch(source, keys))
                sent += batch.producer == 0
                written += len(batch.pairs)
        stages.append(steps)
        written += 1
    return Script(stages, configs)


def drawn_batch(source: random.Random, keys: Sequence[bytes]) -> Batch:
    """Return a batch of random keys, a third of them tombstones."""
    count = source.choice((1, 1, 2, 3, 5, 30))
    pairs: list[Pair] = [
        (key, None if source.random() < 0.3 else b"%d" % source.randrange(1000))
        for key in source.choices(keys, k=count)
    ]
    return Batch(
        pairs, source.choice(CODECS), 0 if source.random() < 0.3 else -1,
        headers=(("h", b"1"),) * source.randrange(3), is_reversed=source.random() < 0.2,
    )  # fmt: skip


SCRIPTS: Final[Mapping[str, Script]] = {
    "one value of each key": Script([[values(b"a"), values(b"b"), values(b"c")]]),
    "values over and over": Script(
        [[values(b"a", b"b"), values(b"b", b"c"), values(b"a"), values(b"c", b"d", b"a")]]
    ),
    "a key twice in a batch": Script([[values(b"a", b"a", b"b", b"a"), values(b"c", b"c")]]),
    "batches that lose all": Script(
        [[values(b"a", b"b"), values(b"c"), values(b"a", b"b"), values(b"d"), values(b"a", b"b"), values(b"d")]]
    ),
    "the end goes in a later cleaning": Script(
        [[values(b"a"), values(b"b")], [values(b"b"), values(b"a")], [values(b"b")], [values(b"c")]]
    ),
    "three cleanings": Script(
        [[values(b"a", b"b", b"c")], [values(b"b", b"d"), values(b"a")], [values(b"a", b"c"), values(b"d", b"e")]]
    ),
    "a tombstone stays for its time": Script(
        [[values(b"a", b"b"), tombstones(b"a")], [values(b"c")], [values(b"c")]], LATER
    ),
    "a tombstone goes": Script(
        [[values(b"a", b"b"), tombstones(b"a")], [values(b"c")], [values(b"c")], [values(b"d")]], AT_ONCE
    ),
    "a tombstone in a later cleaning": Script(
        [[values(b"a", b"b")], [tombstones(b"a"), values(b"c")], [values(b"c")], [values(b"d")]], AT_ONCE
    ),
    "a tombstone of nothing": Script([[tombstones(b"x"), values(b"a")], [values(b"b")], [values(b"b")]], AT_ONCE),
    "a tombstone twice": Script(
        [[values(b"a"), tombstones(b"a"), tombstones(b"a", b"b")], [tombstones(b"a")], [values(b"b")]], LATER
    ),
    "a value behind a tombstone": Script(
        [[values(b"a"), tombstones(b"a"), values(b"a")], [tombstones(b"a")], [values(b"a")], [values(b"b")]], AT_ONCE
    ),
    "tombstones beside values": Script(
        [
            [Batch([(b"a", b"1"), (b"b", None), (b"c", b"2"), (b"d", None)]), values(b"c")],
            [values(b"b")], [values(b"e")], [values(b"e")],
        ],
        AT_ONCE,
    ),
    "odd keys and values": Script(
        [[one(b"", b"1"), one(b"", b""), one(b"\0", b""), one(b"\0\0", b"2"), one(b"\0", b"3"), one(b"k" * 300, b"")],
         [one(b"k" * 300, b"4"), one(b"", None), one(b"k" * 301, b"5")]],
        LATER,
    ),
    "a record without a key is refused": Script([[values(b"a"), one(None, b"1"), values(b"a"), one(None, None)]]),
    "a record without a key among others": Script([[Batch([(b"a", b"1"), (None, b"2")]), values(b"a")]]),
    "headers": Script(
        [[Batch([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], headers=(("h", b"\xff"), ("h", None), ("", b"")))],
         [values(b"b")]]
    ),
    "times that go down": Script(
        [[Batch([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], is_reversed=True),
          Batch([(b"a", b"4"), (b"d", None)], is_reversed=True)], [values(b"d")]],
        LATER,
    ),
    **{
        f"codec {codec}": Script(
            [
                [values(b"a", b"b", codec=codec), values(b"a", b"c", b"d", codec=codec), values(b"d", codec=codec)],
                [values(b"c", b"d", codec=codec), tombstones(b"b", b"d", codec=codec)],
                [values(b"e", codec=codec)],
            ],
            LATER,
        )
        for codec in CODECS
    },
    "another codec": Script(
        [[values(b"a", b"b", codec=GZIP), values(b"b", codec=LZ4)], [values(b"c")]], {"compression.type": "zstd"}
    ),
    "an idempotent producer": Script(
        [
            [values(b"a", producer=0), values(b"b", producer=0), values(b"a", producer=0)],
            [values(b"a"), values(b"b", producer=1), values(b"c", b"a", producer=1)],
            [values(b"c"), values(b"b")],
            [values(b"d", producer=1)],
            [values(b"e")],
        ]
    ),
    "an idempotent producer that repeats itself": Script(
        [
            [*(values(b"a", producer=0) for _ in range(7)), values(b"a", b"b")],
            [Again(0, 6), Again(0, 2), Again(0, 1), Again(0, 0), values(b"c", producer=0)],
            [Again(0, 7), Again(0, 3), Again(0, 2), values(b"c")],
            [values(b"c", producer=0), Again(0, 8), values(b"c")],
        ]
    ),
    "compact and delete": Script(
        [[values(b"a", b"b"), tombstones(b"a")], [values(b"b")], [values(b"c")]],
        {"cleanup.policy": "compact,delete", **LATER},
    ),
    "records are deleted behind cleanings": Script(
        [
            [values(b"a", b"b", b"c"), values(b"b", b"d"), values(b"a", b"c", codec=LZ4)],
            [Trim(1), values(b"d", b"e", codec=ZSTD), values(b"e")],
            [values(b"a"), Trim(6)],
            [Trim(11), values(b"f")],
            [values(b"f", b"b"), Trim(15)],
            [values(b"f")],
        ],
        {"cleanup.policy": "compact,delete", **LATER},
    ),
    "records of a compacted topic are not deleted": Script([[values(b"a", b"b"), values(b"a"), Trim(1)]]),
    "a value goes and its tombstone stays": Script(
        [[values(b"a", b"b")], [tombstones(b"a"), Trim(2)], [values(b"b")], [values(b"a")]],
        {"cleanup.policy": "compact,delete", **LATER},
    ),
    "many batches": Script(
        [
            [values(*(b"k%d" % ((7 * number + each) % 23) for each in range(5)), codec=number % 5)
             for number in range(first, first + 40)]
            for first in (0, 40, 80)
        ]
    ),
    **{f"drawn {seed}": drawn(seed) for seed in DRAWN},
}

"""Bytes that storage may take for something else: zeros, patterns that repeat, and the magics of its own forms."""

import random

MAGICS = (b"PQC1", b"PQC2", b"PQB1", b"PQE1")
NAMES = ("Flips", "flips")
"""They differ by case alone, as keys and groups do that are made of them."""


def payload(source: random.Random, size: int) -> bytes:
    """`size` bytes of a kind by chance."""
    make = source.choice((_zeros, _islands, _pattern, _magics, _ones_between, random.Random.randbytes))
    return make(source, size)


def _zeros(_: random.Random, size: int) -> bytes:
    return bytes(size)


def _islands(source: random.Random, size: int) -> bytes:
    """Zeros with a few other bytes."""
    found = bytearray(size)
    for _ in range(size // 2_000 + 1 if size else 0):
        found[source.randrange(size)] = source.randrange(256)
    return bytes(found)


def _pattern(source: random.Random, size: int) -> bytes:
    return _repeat(source.randbytes(source.choice((1, 3, 512, 4096))), size)


def _magics(source: random.Random, size: int) -> bytes:
    return _repeat(source.choice(MAGICS) + bytes(source.choice((0, 40, 1_500))), size)


def _ones_between(source: random.Random, size: int) -> bytes:
    """Stripes of zeros and of ones, as in images."""
    return _repeat(bytes(source.choice((512, 700, 1_500))) + b"\xff" * source.choice((200, 512)), size)


def _repeat(part: bytes, size: int) -> bytes:
    return (part * (size // len(part) + 1))[:size]

"""The partition of a record that names none: by its key as every Kafka client does it, else any one."""

import random

_SEED = 0x9747_B28C
_M = 0x5BD1_E995
_MASK = 0xFFFF_FFFF
_TAIL_SHIFTS = (0, 8, 16)


def partition_of(key: bytes | None, count: int) -> int:
    """Kafka's default partitioner: murmur2 of the key without its sign."""
    return random.randrange(count) if key is None else (murmur2(key) & 0x7FFF_FFFF) % count


def murmur2(data: bytes) -> int:
    """32 bits, as Kafka's `Utils.murmur2` has them."""
    whole = len(data) & ~3
    state = _SEED ^ len(data)
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        state = state * _M & _MASK ^ word
    if whole < len(data):
        for byte, shift in zip(data[whole:], _TAIL_SHIFTS, strict=False):
            state ^= byte << shift
        state = state * _M & _MASK
    state = (state ^ state >> 13) * _M & _MASK
    return state ^ state >> 15

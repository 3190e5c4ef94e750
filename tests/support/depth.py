"""How deep the tests go: `./test` looks at an eighth of many cases, `python -m tests.properties` at all of them.

The depth is Hypothesis's profile, `quick` unless `--hypothesis-profile=full` is given.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from hypothesis import settings

FULL: Final = "full"
QUICK: Final = "quick"
_FULL_EXAMPLES: Final = 100
_QUICK_PART: Final = 8
_LEAST: Final = 12
"""Fewer than so many examples are left as they are."""


def register_profiles() -> None:
    """Neither has a deadline: a busy machine is no defect."""
    settings.register_profile(FULL, max_examples=_FULL_EXAMPLES, deadline=None)
    settings.register_profile(QUICK, max_examples=_FULL_EXAMPLES // _QUICK_PART, deadline=None)
    settings.load_profile(QUICK)


def examples(full: int, least: int = _LEAST) -> int:
    """The examples that a property test looks at, which has `full` of them at full depth."""
    return full if _is_full() else max(min(full, least), full // _QUICK_PART)


def some(cases: Iterable[int]) -> Sequence[int]:
    """All the cases at full depth, else each eighth and the last, in order."""
    every = sorted(set(cases))
    return every if _is_full() else sorted({*every[::_QUICK_PART], *every[-1:]})


def _is_full() -> bool:
    return settings().max_examples >= _FULL_EXAMPLES

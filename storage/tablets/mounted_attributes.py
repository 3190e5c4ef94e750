"""Attributes that act in the tablets of a table, by tablet: what each took, however many tablets took the same."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Attributes = Mapping[str, Any]
_FIRST_SET, _OTHER_SETS, _NUMBERS = "mounted", "mounted_others", "mounted_numbers"
"""Fields of a table's row. The last two stand there only where tablets differ: versions that know the first one alone
read the row until then."""


@dataclass(frozen=True, slots=True)
class MountedAttributes:
    """Distinct sets of attributes, and for each tablet the number of its set. Every set is some tablet's; the first
    tablet's is the first."""

    sets: tuple[Attributes, ...]
    numbers: tuple[int, ...]

    @classmethod
    def collect(cls, of_tablets: Iterable[Attributes]) -> "MountedAttributes":
        """Number the attributes of tablets, which come in the tablets' order."""
        sets: list[Attributes] = []
        by_object: dict[int, int] = {}  # few objects stand for thousands of tablets
        numbers, known = [], list(of_tablets)
        for attributes in known:
            number = by_object.get(id(attributes))
            if number is None:
                if attributes not in sets:
                    sets.append(attributes)
                number = by_object[id(attributes)] = sets.index(attributes)
            numbers.append(number)
        return cls(tuple(sets), tuple(numbers))

    def __iter__(self) -> Iterator[Attributes]:
        """Return those of each tablet."""
        return (self.sets[number] for number in self.numbers)

    def of_tablet(self, index: int) -> Attributes:
        return self.sets[self.numbers[index]]

    @property
    def differ(self) -> bool:
        """True where some tablet has other attributes than another one."""
        return len(self.sets) > 1

    def taken(self, tablets: Collection[int], attributes: Attributes) -> "MountedAttributes":
        """Return those that act once these tablets have taken `attributes`; the others keep theirs."""
        return self.collect(attributes if index in tablets else own for index, own in enumerate(self))

    def rearranged(self, origins: Iterable[int | None], new: Attributes) -> "MountedAttributes":
        """Return those of tablets by the number that each had before; a tablet without one has `new`."""
        return self.collect(new if origin is None else self.of_tablet(origin) for origin in origins)

    def changed(self, change: Callable[[Attributes], Attributes]) -> "MountedAttributes":
        """Return those that act once each set is what `change` makes of it."""
        sets = [change(each) for each in self.sets]
        return self.collect(sets[number] for number in self.numbers)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a table's row that hold them."""
        first, *others = self.sets
        return {_FIRST_SET: first, **({_OTHER_SETS: others, _NUMBERS: self.numbers} if others else {})}

    @classmethod
    def read(cls, row: Mapping[str, Any], tablets: int) -> "MountedAttributes":
        """Read them of a table's row. ValueError, LookupError, TypeError for one that fits no `tablets` tablets."""
        first, others = row[_FIRST_SET], row.get(_OTHER_SETS)
        if others is None:
            return cls.collect([first] * tablets)
        sets, numbers = (first, *others), tuple(row[_NUMBERS])
        if len(numbers) != tablets or {*numbers} != {*range(len(sets))}:
            raise ValueError(f"attributes of {tablets} tablets are {len(sets)} sets and {len(numbers)} numbers")
        return cls(sets, numbers)

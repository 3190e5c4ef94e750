"""The committed list of mutations: one wrong line each, and the tests that must notice it."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutations.toml")


@dataclass(frozen=True, slots=True)
class Mutation:
    """`before` stands once in `file` and becomes `after`; a line beside the mutated one may serve to find it."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        assert text.count(self.before) == 1, f"{self.name}: {self.file} has {text.count(self.before)} such places"
        return text.replace(self.before, self.after)


def mutations() -> list[Mutation]:
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    return [Mutation(name=name, **{**fields, "tests": tuple(fields["tests"])}) for name, fields in listed.items()]

"""The list fits the code: each mutation can be applied where it says, and its tests are there."""

from tests.mutations.listing import ROOT, mutations

MUTATIONS_MIN = 100
OF_THE_BROKER_MIN = 40
MUTATED = ("broker/", "conf/", "doctor/", "http_client/", "pq/", "protocol/", "registry/", "storage/", "tables/")


def test_every_mutation_has_one_place_and_changes_one_line() -> None:
    listed = mutations()
    assert len(listed) >= MUTATIONS_MIN
    assert sum(mutation.file.startswith("broker/") for mutation in listed) >= OF_THE_BROKER_MIN
    for mutation in listed:
        assert mutation.file.startswith(MUTATED), mutation.name
        text = (ROOT / mutation.file).read_text(encoding="utf-8")
        mutated = mutation.applied(text)
        pairs = zip(text.splitlines(), mutated.splitlines(), strict=True)
        assert sum(before != after for before, after in pairs) == 1, mutation.name


def test_the_tests_of_every_mutation_are_there() -> None:
    for mutation in mutations():
        for test in mutation.tests:
            path, _, name = test.partition("::")
            text = (ROOT / path).read_text(encoding="utf-8")
            assert name.partition("[")[0].partition("::")[0] in text, f"{mutation.name}: {test}"

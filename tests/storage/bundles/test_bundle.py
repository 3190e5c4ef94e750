"""What bundles are made of, when their options may change, where tablets go (D.5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pqbroker.storage.bundles.bundle import (
    OPTIONS,
    Bundle,
    BundleRefused,
    changed_bundle,
    check_removal,
    new_bundle,
    reopens_cells,
)
from pqbroker.storage.bundles.placement import NoHealthyCell, cells_to_open, place
from pqbroker.storage.ids import SYSTEM_CELL, CellId

pytestmark = pytest.mark.spec("D.5")


def test_options_have_the_defaults_of_the_specification() -> None:
    found = new_bundle("b", {}, "").all_options
    assert (found["peer_count"], found["independent_peers"]) == (1, False)
    assert (found["changelog_replication_factor"], found["snapshot_replication_factor"]) == (3, 3)
    assert (found["changelog_read_quorum"], found["changelog_write_quorum"]) == (2, 2)
    assert (found["forced_rotation_memory_ratio"], found["dynamic_memory_pool_weight"]) == (0.7, 1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"peers": 1}, "no option 'peers'"),
        ({"peer_count": 2}, "option peer_count is '2'; give 1 to 1"),
        ({"peer_count": True}, "option peer_count"),
        ({"peer_count": 1.0}, "option peer_count"),
        ({"independent_peers": 1}, "give true or false"),
        ({"forced_rotation_memory_ratio": 1.5}, "give 0 to 1"),
        ({"changelog_account": 5}, "option changelog_account"),
        ({"changelog_account": "x" * 257}, "option changelog_account"),
        ({"changelog_read_quorum": 4}, "a quorum exceeds"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options: dict[str, object], named: str) -> None:
    with pytest.raises(BundleRefused, match=named):
        new_bundle("b", options, "")


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "a/b"])
def test_names_have_a_form(name: str) -> None:
    with pytest.raises(BundleRefused, match="bundle name"):
        new_bundle(name, {}, "")


def test_an_invalid_filter_is_refused_with_the_name_of_the_bundle() -> None:
    with pytest.raises(BundleRefused, match="bundle b: node_tag_filter 'a&' is invalid at character 3"):
        new_bundle("b", {}, "a&")


def test_options_change_only_while_no_table_of_the_bundle_is_served() -> None:
    before = new_bundle("b", {"clock_cluster_tag": 1}, "x")
    with pytest.raises(BundleRefused, match="unmounted: events and 1 more is served"):
        changed_bundle(before, {"clock_cluster_tag": 2}, None, {"events", "orders"})
    after = changed_bundle(before, {"clock_cluster_tag": 2}, None, ())
    assert after == Bundle("b", {"clock_cluster_tag": 2}, "x")
    assert reopens_cells(before, after)


def test_dynamic_options_and_filters_change_at_any_time() -> None:
    before = new_bundle("b", {}, "x")
    after = changed_bundle(before, {"dynamic_memory_pool_weight": 5}, "x|y", {"events"})
    assert after.all_options["dynamic_memory_pool_weight"] == 5
    assert after.node_tag_filter == "x|y"
    assert not reopens_cells(before, after)


def test_setting_an_option_to_what_it_is_changes_nothing() -> None:
    before = new_bundle("b", {}, "")
    same = {name: option.default for name, option in OPTIONS.items()}
    assert not reopens_cells(before, changed_bundle(before, same, None, {"events"}))


def test_the_default_bundle_and_bundles_with_cells_stay() -> None:
    with pytest.raises(BundleRefused, match="default always exists"):
        check_removal("default", 0)
    with pytest.raises(BundleRefused, match="bundle b has 2 cells"):
        check_removal("b", 2)
    check_removal("b", 0)


@pytest.mark.spec("D.5")
@given(st.integers(0, 50), st.dictionaries(st.integers(0, 9).map(CellId), st.integers(0, 20), min_size=1))
def test_tablets_go_to_the_cells_with_the_fewest(count: int, held: dict[CellId, int]) -> None:
    found = place(count, "b", held)
    assert len(found) == count
    counts = dict(held)
    for cell in found:
        assert counts[cell] == min(counts.values())
        counts[cell] += 1


def test_tablets_are_spread_evenly_over_the_cells() -> None:
    assert place(5, "b", {CellId(2): 0, CellId(1): 0, CellId(7): 1}) == [1, 2, 1, 2, 7]


@pytest.mark.spec("D.5")
def test_a_bundle_without_a_healthy_cell_refuses_by_name() -> None:
    with pytest.raises(NoHealthyCell, match="No healthy tablet cells in bundle 'b'"):
        place(1, "b", {})


def test_a_node_opens_the_cells_whose_bundle_fits_its_tags_and_the_system_cell() -> None:
    cells = {CellId(1): "ssd", CellId(2): "any", CellId(3): "gone"}
    bundles = [Bundle("ssd", {}, "ssd&!old"), Bundle("any"), Bundle("default", {}, "never")]
    assert cells_to_open(cells, bundles, {"ssd"}) == {SYSTEM_CELL, 1, 2}
    assert cells_to_open(cells, bundles, {"ssd", "old"}) == {SYSTEM_CELL, 2}

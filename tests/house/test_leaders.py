"""Who leads what is asked of one room: no handler takes it that its own node does."""

from tests.house.sources import product


def test_no_handler_compares_with_the_id_of_its_node() -> None:
    rooms = ("broker/kafka/", "broker/web/tree/")
    found = [source.path for source in product() if source.path.startswith(rooms) and "settings.node_id" in source.text]
    assert found == []

"""The registries that settings name."""

from pathlib import Path

from pqbroker.broker.services.topics.named_registries import wrong_files
from pqbroker.conf.broker import BrokerSettings


def test_each_file_that_is_wrong_or_of_no_registry_is_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("bearer.auth.token = abc")
    bad.write_text("colour = red")
    files = (f"main={good}", f"other={bad}", f"mian={good}")
    settings = BrokerSettings(registries=("main=http://h:1", "other=http://h:2"), registry_config_files=files)
    found = list(wrong_files(settings))
    assert len(found) == 2
    assert found[0].startswith(f"registry other: {bad}: unknown name colour; give ")
    assert found[1] == "pqbroker.registry.config.files has a file for mian, which pqbroker.registries does not name"
